// SPDX-License-Identifier: GPL-2.0-only
//! Writes SVG elements: every one is closed, every text and attribute is escaped.

use std::fmt::Write as _;

/// Text for an element's content or an attribute's value. What XML cannot hold at all becomes U+FFFD.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\t' | '\n' | '\r' => out.push(c),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// A coordinate with as many digits as can be seen.
pub fn px(value: f64) -> String {
    let text = format!("{value:.1}");
    match text.strip_suffix(".0") {
        Some("-0") => "0".into(),
        Some(whole) => whole.into(),
        None => text,
    }
}

/// Markup under construction.
#[derive(Default)]
pub struct Svg {
    out: String,
    open: Vec<&'static str>,
}

impl Svg {
    /// Opens an element, which [`Svg::close`] ends.
    pub fn open(&mut self, name: &'static str, attributes: &[(&str, &str)]) {
        self.start(name, attributes, ">");
        self.open.push(name);
    }

    /// Ends the element opened last.
    ///
    /// # Panics
    /// None is open.
    pub fn close(&mut self) {
        let name = self.open.pop().expect("an element is open");
        let _ = write!(self.out, "</{name}>");
    }

    /// An element without content.
    pub fn empty(&mut self, name: &'static str, attributes: &[(&str, &str)]) {
        self.start(name, attributes, "/>");
    }

    /// An element with text.
    pub fn text(&mut self, name: &'static str, attributes: &[(&str, &str)], text: &str) {
        self.start(name, attributes, ">");
        let _ = write!(self.out, "{}</{name}>", escape(text));
    }

    /// A straight line.
    pub fn line(&mut self, class: &str, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
        let [x1, y1, x2, y2] = [x1, y1, x2, y2].map(px);
        let place = [("x1", &x1), ("y1", &y1), ("x2", &x2), ("y2", &y2)];
        let mut attributes = vec![("class", class)];
        attributes.extend(place.map(|(name, value)| (name, value.as_str())));
        self.empty("line", &attributes);
    }

    /// The markup.
    ///
    /// # Panics
    /// An element is still open.
    pub fn finish(self) -> String {
        assert!(self.open.is_empty(), "{:?} are not closed", self.open);
        self.out
    }

    fn start(&mut self, name: &str, attributes: &[(&str, &str)], end: &str) {
        let _ = write!(self.out, "<{name}");
        for (name, value) in attributes {
            let _ = write!(self.out, " {name}=\"{}\"", escape(value));
        }
        self.out.push_str(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: nothing that comes from outside becomes markup, and every element is closed.
    // Method: a hostile name as text and as attribute; control characters, which no XML may hold.
    #[test]
    fn all_is_escaped_and_closed() {
        let hostile = "<script>\"a\" & 'b'</script>\u{1}";
        let mut svg = Svg::default();
        svg.open("g", &[("class", hostile)]);
        svg.text("text", &[], hostile);
        svg.line("axis", (0.04, -0.04), (1.0, 2.26));
        svg.close();
        let escaped = "&lt;script&gt;&quot;a&quot; &amp; &#39;b&#39;&lt;/script&gt;\u{fffd}";
        assert_eq!(
            svg.finish(),
            format!(
                "<g class=\"{escaped}\"><text>{escaped}</text>\
                 <line class=\"axis\" x1=\"0\" y1=\"0\" x2=\"1\" y2=\"2.3\"/></g>"
            )
        );
    }
}
