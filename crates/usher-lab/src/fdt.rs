// SPDX-License-Identifier: GPL-2.0-only
//! Flattened device trees: what a machine without firmware tables tells its kernel about itself. Read into a tree,
//! changed there, written again.
//!
//! Source: the Devicetree Specification, chapter 5 (format version 17). Every offset is checked, so a damaged file
//! is an error, not a panic.

use std::collections::BTreeMap;

const MAGIC: u32 = 0xd00d_feed;
const VERSION: u32 = 17;
/// The oldest version of which a reader of this one understands files of version 17.
const COMPATIBLE_VERSION: u32 = 16;
const HEADER_LEN: usize = 40;

const BEGIN_NODE: u32 = 1;
const END_NODE: u32 = 2;
const PROPERTY: u32 = 3;
const NOTHING: u32 = 4;
const END: u32 = 9;

/// Nodes within nodes; deeper ones are taken for damage.
const DEPTH_MAX: usize = 64;

/// A whole tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tree {
    /// Memory that the kernel must not use: address, length.
    pub reserved: Vec<(u64, u64)>,
    /// The CPU that boots.
    pub boot_cpu: u32,
    /// The root node.
    pub root: Node,
}

/// A node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Node {
    /// Name with its unit address: `cpu@1`.
    pub name: String,
    /// Properties in their order.
    pub properties: Vec<(String, Vec<u8>)>,
    /// Nodes inside, in their order.
    pub children: Vec<Node>,
}

impl Node {
    /// An empty node.
    pub fn new(name: &str) -> Self {
        Node {
            name: name.into(),
            ..Node::default()
        }
    }

    /// A property's bytes.
    pub fn property(&self, name: &str) -> Option<&[u8]> {
        let found = self.properties.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_slice())
    }

    /// A property that is one number of 32 bits.
    pub fn cell(&self, name: &str) -> Option<u32> {
        let value = self.property(name)?;
        Some(u32::from_be_bytes(value.try_into().ok()?))
    }

    /// Sets a property, adding it at the end if it is new.
    pub fn set(&mut self, name: &str, value: Vec<u8>) {
        match self.properties.iter_mut().find(|(known, _)| known == name) {
            Some((_, old)) => *old = value,
            None => self.properties.push((name.into(), value)),
        }
    }

    /// Sets a property to one number of 32 bits.
    pub fn set_cell(&mut self, name: &str, value: u32) {
        self.set(name, value.to_be_bytes().to_vec());
    }

    /// Sets a property to a text.
    pub fn set_text(&mut self, name: &str, text: &str) {
        self.set(name, [text.as_bytes(), b"\0"].concat());
    }

    /// The child of this name.
    pub fn child(&mut self, name: &str) -> Option<&mut Node> {
        self.children.iter_mut().find(|child| child.name == name)
    }

    /// The largest phandle, the number by which nodes refer to each other, in this node and below; 0 for none.
    pub fn phandle_max(&self) -> u32 {
        let own = self.cell("phandle").unwrap_or(0);
        let inside = self.children.iter().map(Node::phandle_max);
        inside.fold(own, u32::max)
    }
}

/// Reads a flattened tree; the error says what is wrong with it.
pub fn parse(bytes: &[u8]) -> Result<Tree, String> {
    let header = |index: usize| word(bytes, index * 4).ok_or("header cut short");
    if header(0)? != MAGIC {
        return Err("not a flattened device tree (no magic number)".into());
    }
    if header(6)? > VERSION || header(5)? < COMPATIBLE_VERSION {
        return Err(format!(
            "device tree of version {}, not {VERSION}",
            header(5)?
        ));
    }
    let section = |offset: usize, length: usize| bytes.get(offset..offset.checked_add(length)?);
    let structure =
        section(header(2)? as usize, header(9)? as usize).ok_or("structure outside the file")?;
    let strings =
        section(header(3)? as usize, header(8)? as usize).ok_or("strings outside the file")?;
    let mut reader = Reader {
        structure,
        strings,
        at: 0,
    };
    if reader.token()? != BEGIN_NODE {
        return Err("no root node".into());
    }
    let root = reader.node(0)?;
    Ok(Tree {
        reserved: reserved(bytes, header(4)? as usize)?,
        boot_cpu: header(7)?,
        root,
    })
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_be_bytes(four.try_into().expect("four bytes")))
}

/// The list of reserved memory, which ends with an empty entry.
fn reserved(bytes: &[u8], mut at: usize) -> Result<Vec<(u64, u64)>, String> {
    let mut list = Vec::new();
    loop {
        let double = |at| Some(u64::from(word(bytes, at)?) << 32 | u64::from(word(bytes, at + 4)?));
        let entry = double(at).zip(double(at + 8));
        match entry.ok_or("list of reserved memory cut short")? {
            (0, 0) => return Ok(list),
            entry => list.push(entry),
        }
        at += 16;
    }
}

/// Walks the structure block.
struct Reader<'a> {
    structure: &'a [u8],
    strings: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn word(&mut self) -> Result<u32, String> {
        let value = word(self.structure, self.at).ok_or("structure cut short")?;
        self.at += 4;
        Ok(value)
    }

    fn token(&mut self) -> Result<u32, String> {
        loop {
            match self.word()? {
                NOTHING => {}
                token => return Ok(token),
            }
        }
    }

    /// A node, from behind its first token to behind its last.
    fn node(&mut self, depth: usize) -> Result<Node, String> {
        if depth > DEPTH_MAX {
            return Err(format!("nodes more than {DEPTH_MAX} deep"));
        }
        let name = text(self.structure, self.at).ok_or("a node's name is no text")?;
        self.skip(name.len() + 1);
        let mut node = Node::new(name);
        loop {
            match self.token()? {
                PROPERTY => {
                    let length = self.word()? as usize;
                    let name = self.word()? as usize;
                    let name = text(self.strings, name).ok_or("a property's name is no text")?;
                    let end = self.at.checked_add(length);
                    let value = end.and_then(|end| self.structure.get(self.at..end));
                    let value = value.ok_or("a property's value is cut short")?;
                    node.properties.push((name.into(), value.to_vec()));
                    self.skip(length);
                }
                BEGIN_NODE => node.children.push(self.node(depth + 1)?),
                END_NODE => return Ok(node),
                token => return Err(format!("unknown token {token} in node {}", node.name)),
            }
        }
    }

    /// Goes on behind so many bytes, aligned to the next word.
    fn skip(&mut self, length: usize) {
        self.at += length.next_multiple_of(4);
    }
}

fn text(bytes: &[u8], at: usize) -> Option<&str> {
    let rest = bytes.get(at..)?;
    let end = rest.iter().position(|&byte| byte == 0)?;
    std::str::from_utf8(&rest[..end]).ok()
}

/// Writes a tree.
pub fn write(tree: &Tree) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.node(&tree.root);
    writer.word(END);
    let mut reserved = Vec::new();
    for (address, length) in tree.reserved.iter().chain([&(0, 0)]) {
        reserved.extend(address.to_be_bytes());
        reserved.extend(length.to_be_bytes());
    }
    let structure_at = HEADER_LEN + reserved.len();
    let strings_at = structure_at + writer.structure.len();
    let header = [
        MAGIC,
        (strings_at + writer.strings.len()) as u32,
        structure_at as u32,
        strings_at as u32,
        HEADER_LEN as u32,
        VERSION,
        COMPATIBLE_VERSION,
        tree.boot_cpu,
        writer.strings.len() as u32,
        writer.structure.len() as u32,
    ];
    let mut out: Vec<u8> = header.into_iter().flat_map(u32::to_be_bytes).collect();
    out.extend(reserved);
    out.extend(writer.structure);
    out.extend(writer.strings);
    out
}

#[derive(Default)]
struct Writer {
    structure: Vec<u8>,
    strings: Vec<u8>,
    /// Where in `strings` each name is.
    known: BTreeMap<String, u32>,
}

impl Writer {
    fn word(&mut self, value: u32) {
        self.structure.extend(value.to_be_bytes());
    }

    fn padded(&mut self, bytes: &[u8]) {
        self.structure.extend(bytes);
        let length = self.structure.len().next_multiple_of(4);
        self.structure.resize(length, 0);
    }

    fn node(&mut self, node: &Node) {
        self.word(BEGIN_NODE);
        self.padded(&[node.name.as_bytes(), b"\0"].concat());
        for (name, value) in &node.properties {
            self.word(PROPERTY);
            self.word(value.len() as u32);
            let name = self.name(name);
            self.word(name);
            self.padded(value);
        }
        for child in &node.children {
            self.node(child);
        }
        self.word(END_NODE);
    }

    fn name(&mut self, name: &str) -> u32 {
        if let Some(&at) = self.known.get(name) {
            return at;
        }
        let at = self.strings.len() as u32;
        self.strings.extend([name.as_bytes(), b"\0"].concat());
        self.known.insert(name.into(), at);
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> Tree {
        let mut cpu = Node::new("cpu@1");
        cpu.set_text("device_type", "cpu");
        cpu.set_cell("phandle", 0x8001);
        let mut cpus = Node::new("cpus");
        cpus.set_cell("#address-cells", 1);
        cpus.set("empty", Vec::new());
        cpus.children.push(cpu);
        let mut root = Node::new("");
        root.set("odd", vec![1, 2, 3, 4, 5]);
        root.children.push(cpus);
        Tree {
            reserved: vec![(0x4000_0000, 0x1000)],
            boot_cpu: 1,
            root,
        }
    }

    /// Goal: what is written is what the format says, and is read back. Method: the words of a tree of one empty
    /// node, as the specification's section 5.4 has them, and a tree with everything in it.
    #[test]
    fn trees_are_written_and_read() {
        let bare = Tree {
            reserved: Vec::new(),
            boot_cpu: 0,
            root: Node::new(""),
        };
        let bytes = write(&bare);
        let words: Vec<u32> = (0..bytes.len())
            .step_by(4)
            .filter_map(|at| word(&bytes, at))
            .collect();
        let header = [MAGIC, 72, 56, 72, 40, 17, 16, 0, 0, 16];
        assert_eq!(words[..10], header);
        assert_eq!(words[10..], [0, 0, 0, 0, BEGIN_NODE, 0, END_NODE, END]);
        assert_eq!(parse(&bytes).unwrap(), bare);
        let tree = small();
        assert_eq!(parse(&write(&tree)).unwrap(), tree);
        assert_eq!(tree.root.phandle_max(), 0x8001);
    }

    /// Goal: properties are changed in place and found. Method: set one twice.
    #[test]
    fn properties_are_set_once() {
        let mut root = small().root;
        let cpu = root.child("cpus").unwrap().child("cpu@1").unwrap();
        cpu.set_cell("capacity-dmips-mhz", 446);
        cpu.set_cell("capacity-dmips-mhz", 1024);
        assert_eq!(cpu.properties.len(), 3);
        assert_eq!(cpu.cell("capacity-dmips-mhz"), Some(1024));
        assert_eq!(cpu.property("device_type"), Some(&b"cpu\0"[..]));
        assert_eq!(cpu.cell("device_type"), Some(u32::from_be_bytes(*b"cpu\0")));
        assert!(root.child("memory").is_none());
    }

    /// Goal: no cut or damaged file makes the reader panic or run away. Method: every prefix, and damage in each
    /// byte.
    #[test]
    fn damaged_trees_are_no_panic() {
        let bytes = write(&small());
        for cut in 0..bytes.len() {
            assert!(parse(&bytes[..cut]).is_err(), "cut at {cut}");
        }
        for at in 0..bytes.len() {
            for change in [0x01, 0x80, 0xff] {
                let mut damaged = bytes.clone();
                damaged[at] ^= change;
                let _ = parse(&damaged);
            }
        }
        assert!(parse(b"\x7fELF").unwrap_err().contains("magic"));
    }
}
