// SPDX-License-Identifier: GPL-2.0-only
//! The picture of a mechanism: an SVG file beside the experiment, which a report shows inline.
//!
//! Inline means that the picture is part of the page: it takes the page's fonts and colours, so that it can be read
//! in the dark, and a script or a foreign address in it would be the page's own. So only shapes and
//! text are let through, written anew from what was read, and colours are classes that the page defines.

use usher_report::svg::Svg;

use crate::error::{ReproduceError, Result};

/// Elements that a picture may hold.
const ELEMENTS: [&str; 10] = [
    "svg", "title", "g", "rect", "circle", "line", "polyline", "polygon", "path", "text",
];

/// What they may say: where they are, and their class.
const ATTRIBUTES: [&str; 20] = [
    "viewBox",
    "class",
    "x",
    "y",
    "width",
    "height",
    "rx",
    "ry",
    "cx",
    "cy",
    "r",
    "x1",
    "y1",
    "x2",
    "y2",
    "points",
    "d",
    "transform",
    "dx",
    "dy",
];

/// The classes that the page's style sheet knows, of which an element may have several.
pub const CLASSES: [&str; 13] = [
    "box", "cpu", "busy", "line", "hot", "task", "arrow", "write", "read", "middle", "end",
    "heading", "small",
];

/// A picture that is fit for a page.
#[derive(Clone, Debug, PartialEq)]
pub struct Picture {
    /// One `svg` element, whose title is its name for those who cannot see it.
    pub markup: String,
}

impl Picture {
    /// Reads a picture.
    ///
    /// # Errors
    /// It is no SVG, has no title or size, or holds something that a picture may not.
    pub fn parse(origin: &str, text: &str) -> Result<Picture> {
        let wrong = |line: u32, what: String| ReproduceError::Experiment {
            origin: format!("{origin}:{line}"),
            what,
        };
        let document = roxmltree::Document::parse(text)
            .map_err(|error| wrong(error.pos().row, format!("is no SVG: {error}")))?;
        let root = document.root_element();
        if root.tag_name().name() != "svg" || root.attribute("viewBox").is_none() {
            let what = "a picture is one <svg> with a viewBox, 340 wide".to_string();
            return Err(wrong(1, what));
        }
        let title = root
            .children()
            .find(|node| node.has_tag_name(("http://www.w3.org/2000/svg", "title")));
        let title = title
            .and_then(|node| node.text())
            .map(str::trim)
            .unwrap_or_default();
        if title.is_empty() {
            let what =
                "the picture has no <title>, which is all that some readers get of it; add one";
            return Err(wrong(1, what.into()));
        }
        let mut svg = Svg::default();
        copy(root, title, &mut svg)
            .map_err(|(at, what)| wrong(document.text_pos_at(at).row, what))?;
        Ok(Picture {
            markup: svg.finish(),
        })
    }
}

/// Writes an element and what is in it; an error has its place in the text.
fn copy(
    node: roxmltree::Node<'_, '_>,
    title: &str,
    svg: &mut Svg,
) -> std::result::Result<(), (usize, String)> {
    let at = node.range().start;
    let name = node.tag_name().name();
    let known = ELEMENTS.iter().find(|known| **known == name);
    let known = known.ok_or_else(|| {
        let elements = ELEMENTS.join(", ");
        (
            at,
            format!("<{name}> may not be in a picture; these may: {elements}"),
        )
    })?;
    let mut attributes: Vec<(&str, &str)> = Vec::new();
    for attribute in node.attributes() {
        let (name, value) = (attribute.name(), attribute.value());
        if !ATTRIBUTES.contains(&name) {
            let what = match name {
                "fill" | "stroke" | "style" => format!(
                    "`{name}` is the page's; choose a class: {}",
                    CLASSES.join(", ")
                ),
                _ => format!(
                    "`{name}` may not be in a picture; these may: {}",
                    ATTRIBUTES.join(", ")
                ),
            };
            return Err((at, what));
        }
        if name == "class" {
            if let Some(class) = value.split_whitespace().find(|c| !CLASSES.contains(c)) {
                let known = CLASSES.join(", ");
                return Err((at, format!("class `{class}` is unknown; known: {known}")));
            }
            continue;
        }
        attributes.push((name, value));
    }
    let own = node.attribute("class").unwrap_or_default();
    let is_root = node.parent_element().is_none();
    let class = if is_root { "picture" } else { own };
    if !class.is_empty() {
        attributes.insert(0, ("class", class));
    }
    if is_root {
        attributes.extend([("role", "img"), ("aria-label", title)]);
    }
    let has_text = ["title", "text"].contains(known);
    if has_text {
        if let Some(inner) = node.children().find(|child| child.is_element()) {
            let what = "text holds text alone; write another <text> instead".to_string();
            return Err((inner.range().start, what));
        }
        svg.text(known, &attributes, node.text().unwrap_or_default().trim());
        return Ok(());
    }
    let children: Vec<_> = node.children().filter(|child| child.is_element()).collect();
    if children.is_empty() {
        svg.empty(known, &attributes);
        return Ok(());
    }
    svg.open(known, &attributes);
    for child in children {
        copy(child, title, svg)?;
    }
    svg.close();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(inner: &str) -> Result<Picture> {
        let text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 340 90\">\n\
             <title>two &amp; two</title>\n{inner}\n</svg>"
        );
        Picture::parse("p.svg", &text)
    }

    // Goal: shapes and text come through, escaped, with the title as the name; comments do not.
    #[test]
    fn shapes_come_through() {
        let picture = with(
            "<!-- no --><g class=\"box\"><rect x=\"1\" y=\"2\" width=\"3\" height=\"4\"/></g>\
                            <text x=\"1\" y=\"2\" class=\"small middle\"> a &lt; b </text>",
        );
        assert_eq!(
            picture.unwrap().markup,
            "<svg class=\"picture\" viewBox=\"0 0 340 90\" role=\"img\" aria-label=\"two &amp; two\">\
             <title>two &amp; two</title><g class=\"box\"><rect x=\"1\" y=\"2\" width=\"3\" height=\"4\"/></g>\
             <text class=\"small middle\" x=\"1\" y=\"2\">a &lt; b</text></svg>"
        );
    }

    // Goal: what could act, load or spoil the page's colours is refused with its place and the remedy.
    // Method: one of each in the third line.
    #[test]
    fn what_could_act_is_refused() {
        for (inner, what) in [
            (
                "<script>alert(1)</script>",
                "<script> may not be in a picture; these may: svg,",
            ),
            ("<image href=\"http://a.b/c.png\"/>", "<image> may not be"),
            ("<foreignObject/>", "<foreignObject> may not be"),
            ("<a href=\"javascript:x()\"/>", "<a> may not be"),
            (
                "<rect onclick=\"x()\"/>",
                "`onclick` may not be in a picture",
            ),
            (
                "<rect fill=\"url(http://a.b/)\"/>",
                "`fill` is the page's; choose a class: box,",
            ),
            ("<rect style=\"color:red\"/>", "`style` is the page's"),
            (
                "<rect class=\"cpu verdict\"/>",
                "class `verdict` is unknown",
            ),
            ("<text>a<g/></text>", "text holds text alone"),
        ] {
            let error = with(inner).unwrap_err().to_string();
            assert!(
                error.starts_with("p.svg:3: ") && error.contains(what),
                "{error}"
            );
        }
        for (text, what) in [
            ("<svg", "p.svg:1: is no SVG"),
            ("<p viewBox=\"0 0 1 1\"/>", "one <svg> with a viewBox"),
            (
                "<svg xmlns=\"http://www.w3.org/2000/svg\"/>",
                "one <svg> with a viewBox",
            ),
            (
                "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 1 1\"/>",
                "has no <title>",
            ),
        ] {
            let error = Picture::parse("p.svg", text).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        }
    }
}
