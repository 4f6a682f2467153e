// SPDX-License-Identifier: GPL-2.0-only
//! The built-in machines, and machine files in general.

use usher_topo::machine::{self, MachineFile};
use usher_topo::{shape, Cid, Cpu, Node, Topology};

fn build(name: &str) -> Topology {
    let raw = machine::load(name).and_then(|file| file.to_raw());
    Topology::build(&raw.unwrap_or_else(|e| panic!("{name}: {e}")), 64).unwrap()
}

// Goal: every built-in machine has the size its posting gives it. Method: a table written from the
// postings (not from the files): CPUs, nodes, LLCs, cores, shards of 64, tiers.
#[test]
fn built_in_machines_have_the_published_sizes() {
    let expected = [
        ("2a15", [2, 1, 1, 2, 1, 1]),
        ("2n2l2c2t", [16, 2, 4, 8, 4, 1]),
        ("4b4l", [8, 1, 2, 8, 2, 2]),
        ("4n4l2c1t", [32, 4, 16, 32, 16, 1]),
        ("dgx-1-80", [80, 2, 2, 40, 2, 1]),
        ("dgx-b200-224", [224, 2, 2, 112, 4, 1]),
        ("epyc-2s-384", [384, 2, 24, 192, 24, 1]),
        ("hcc-2s-480", [480, 2, 2, 240, 8, 1]),
        ("hybrid-8p16e", [32, 1, 1, 24, 1, 2]),
        ("icx-2s", [128, 2, 2, 64, 2, 1]),
        ("tc2-2a15-3a7", [5, 1, 2, 5, 2, 2]),
        ("xeon-4s24c2t-192", [192, 4, 4, 96, 4, 1]),
        ("zen3-2s", [256, 2, 16, 128, 16, 1]),
    ];
    let names: Vec<&str> = machine::builtin_names().collect();
    assert_eq!(names, expected.map(|(name, _)| name));
    for (name, sizes) in expected {
        let topo = build(name);
        let found = [
            topo.nr_cids(),
            topo.nodes().len(),
            topo.llcs().len(),
            topo.cores().len(),
            topo.shards().len(),
            topo.tiers().len(),
        ];
        assert_eq!(
            found, sizes,
            "{name}: cpus, nodes, LLCs, cores, shards, tiers"
        );
        assert_eq!(topo.name(), name);
        assert!(!topo.title().is_empty() && topo.costs().is_some(), "{name}");
    }
}

// Goal: no machine file is forgotten by the binary, and each says where its figures come from.
// Method: the directory's content against the built-in names; provenance of each.
#[test]
fn every_machine_file_is_built_in_and_has_provenance() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/machines");
    let mut files: Vec<String> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    files.sort();
    let names: Vec<String> = machine::builtin_names()
        .map(|name| format!("{name}.toml"))
        .collect();
    assert_eq!(files, names);
    for name in machine::builtin_names() {
        let file = machine::load(name).unwrap();
        assert_eq!(file.name, name);
        assert!(file.provenance.contains_key("shape"), "{name}");
        let by_path = machine::load(&format!("{dir}/{name}.toml")).unwrap();
        assert_eq!(
            by_path.to_raw().unwrap(),
            file.to_raw().unwrap(),
            "{name}: by path"
        );
    }
}

// Goal: the cost table that a machine names exists. Method: look beside the machines.
#[test]
fn cost_tables_exist() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/costs");
    for name in machine::builtin_names() {
        let costs = machine::load(name).unwrap().costs.unwrap();
        let path = format!("{dir}/{costs}.toml");
        assert!(std::path::Path::new(&path).exists(), "{name} names {path}");
    }
}

// Goal: the usual x86 numbering. Method: hcc-2s-480, of which the posting's numbering is known: 0-119
// on socket 0, 120-239 on socket 1, then the siblings.
#[test]
fn siblings_last_numbers_as_x86_servers_do() {
    let topo = build("hcc-2s-480");
    let first = topo.cores()[0];
    assert_eq!(topo.cpus_in(first.cids), [Cpu(0), Cpu(240)]);
    assert_eq!(topo.cpus_in(topo.cores()[120].cids), [Cpu(120), Cpu(360)]);
    assert_eq!(topo[topo.cid_of(Cpu(119)).unwrap()].node, Node(0));
    assert_eq!(topo[topo.cid_of(Cpu(239)).unwrap()].node, Node(1));
    assert_eq!(topo[topo.cid_of(Cpu(359)).unwrap()].node, Node(0));
    assert_eq!(
        topo.shards()
            .iter()
            .map(|s| s.cids.len())
            .collect::<Vec<_>>(),
        [60; 8]
    );
}

// Goal: asymmetric machines. Method: the two in the tree, checked cid by cid against their description.
#[test]
fn asymmetric_machines_have_tiers_types_and_clusters() {
    let tc2 = build("tc2-2a15-3a7");
    assert_eq!(tc2.tiers()[0].capacity, 1024);
    assert_eq!(tc2.tiers()[1].cids, [Cid(2), Cid(3), Cid(4)]);
    let a7 = &tc2[tc2[Cid(4)].core_type];
    assert_eq!(
        (a7.capacity, a7.cpu_power, a7.speed_permille),
        (430, Some(606), 490)
    );
    assert!(
        tc2.clusters().is_empty(),
        "an L2 that is the last level is an LLC, no cluster"
    );

    let hybrid = build("hybrid-8p16e");
    assert_eq!(hybrid.smt_width(), 2);
    assert_eq!(hybrid.clusters().len(), 4);
    for (i, cluster) in hybrid.clusters().iter().enumerate() {
        assert_eq!(cluster.cids.first(), Cid(16 + 4 * i as u32));
        assert_eq!((cluster.cids.len(), cluster.cores.len()), (4, 4));
    }
    assert!(hybrid.cids()[..16]
        .iter()
        .all(|c| c.cluster.is_none() && c.capacity == 1024));
    assert_eq!(hybrid.tiers()[1].cids.len(), 16);
}

// Goal: a lab shape and the machine file of the same name are one machine. Method: compare the tables;
// name, title and the simulator's figures aside.
#[test]
fn lab_shapes_equal_their_machine_files() {
    for name in ["2n2l2c2t", "4n4l2c1t", "4b4l"] {
        let parsed = name.parse::<shape::Shape>().unwrap();
        assert_eq!(parsed.to_string(), name);
        let parsed = Topology::build(&parsed.to_raw(), 64).unwrap();
        let file = build(name);
        assert_eq!(parsed.cids(), file.cids(), "{name}");
        assert_eq!(parsed.nodes(), file.nodes(), "{name}");
        assert_eq!(parsed.core_types(), file.core_types(), "{name}");
    }
    // A name that is no shape still works where a shape is asked for.
    assert_eq!(shape::parse("tc2-2a15-3a7").unwrap().cpus.len(), 5);
}

// Goal: writing a machine file loses nothing. Method: write each built-in machine and read it back; the
// file must also be about as short as the original, that is, repeats must be found.
#[test]
fn machine_files_round_trip() {
    for name in machine::builtin_names() {
        let topo = build(name);
        let text = machine::write(&topo, "a test").unwrap();
        let back = MachineFile::parse("written", &text).and_then(|file| file.to_raw());
        let back = Topology::build(&back.unwrap_or_else(|e| panic!("{e}\n{text}")), 64).unwrap();
        assert_eq!(back, topo, "{text}");
        assert!(
            text.lines().count() < 80,
            "{name} was not compressed:\n{text}"
        );
    }
}

const SMALL: &str = r#"
name = "small"
title = "two sockets, NUMA off"
numbering = "4-7,0-3"
offline = "5,9"
[provenance]
shape = "invented"
[[socket]]
id = 3
[[socket.node]]
id = 1
[[socket.node.llc]]
[[socket.node.llc.core]]
count = 2
threads = 2
[[socket]]
id = 8
[[socket.node]]
id = 1
[[socket.node.llc]]
[[socket.node.llc.core]]
count = 2
threads = 2
[[memory_node]]
id = 4
memory_bytes = 1024
"#;

// Goal: the unusual entries: a list for numbering, offline CPUs, one node over two sockets, memory-only
// nodes. Method: one file that has them all, each looked up in the tables.
#[test]
fn unusual_machine_files_are_understood() {
    let raw = MachineFile::parse("small", SMALL)
        .unwrap()
        .to_raw()
        .unwrap();
    let topo = Topology::build(&raw, 64).unwrap();
    assert_eq!(topo.offline(), [Cpu(5), Cpu(9)]);
    assert_eq!(topo.nr_cids(), 7);
    assert_eq!(
        topo.packages().iter().map(|p| p.id).collect::<Vec<_>>(),
        [3, 8]
    );
    assert_eq!(
        topo.nodes().iter().map(|n| n.id).collect::<Vec<_>>(),
        [1, 4]
    );
    assert!(topo.nodes()[1].cids.is_empty());
    assert_eq!(topo.nodes()[1].memory_bytes, Some(1024));
    // The LLC with the lower CPU numbers comes first, though it is second in the file.
    assert_eq!(topo.llcs()[0].package, usher_topo::Package(1));
    assert_eq!(topo.cores()[2].cids.len(), 1, "cpu 4's sibling is offline");
    assert_eq!(topo.nr_cpu_numbers(), 10);
}

// Goal: a wrong machine file gives one line with file, line, value and remedy. Method: break the small
// file in one place at a time and look for the line number and a word of the message.
#[test]
fn wrong_machine_files_are_refused_by_line() {
    let cases: &[(&str, &str, &str)] = &[
        (
            "4-7,0-3",
            "4-7,0-2",
            "broken:4: numbering: 7 numbers, 7 distinct, for 8 CPUs",
        ),
        ("4-7,0-3", "4-7,0-4", "broken:4: numbering: 9 numbers"),
        (
            "4-7,0-3",
            "4-7,4-7",
            "broken:4: numbering: 8 numbers, 4 distinct",
        ),
        ("4-7,0-3", "random", "broken:4: numbering: not a number"),
        ("\"5,9\"", "\"5;9\"", "broken:5: offline: not a number"),
        (
            "threads = 2\n[[socket]]",
            "threads = 0\n[[socket]]",
            "broken:15: a count of zero",
        ),
        ("count = 2\n", "cuont = 2\n", "broken:14: unknown field"),
        (
            "id = 8",
            "id = 8\ncount = 2",
            "broken:17: one id for several",
        ),
        (
            "id = 3\n",
            "",
            "some sockets have an id and others have none",
        ),
        ("id = 4", "id = 1", "broken:25: node id is taken"),
        (
            "threads = 2\n",
            "threads = 4000000000\n",
            "8000000004 online CPUs",
        ),
        (
            "[provenance]\nshape = \"invented\"\n",
            "",
            "missing field `provenance`",
        ),
        ("title", "title = = 3", "broken:3:"),
        (
            "threads = 2\n[[socket]]",
            "type = \"P\"\n[[socket]]",
            "broken:15: unknown core type",
        ),
        (
            "threads = 2\n[[socket]]",
            "same_cluster = true\n[[socket]]",
            "joins no cluster",
        ),
        (
            "[[socket.node.llc.core]]\ncount = 2\nthreads = 2\n",
            "core = []\n",
            "a llc without a core",
        ),
        ("offline = \"5,9\"", "offline = \"0-7\"", "no online CPU"),
        (
            "[[socket]]\nid = 3",
            "[distances]\nmatrix = [[10, 20]]\n[[socket]]\nid = 3",
            "broken:9: matrix is not 2 by 2",
        ),
        (
            "[[socket]]\nid = 3",
            "[distances]\nmatrix = [[10, 20], [0, 10]]\n[[socket]]\nid = 3",
            "broken:9: a distance of 0",
        ),
        (
            "[[socket]]\nid = 3",
            "[distances]\nremote = 255\n[[socket]]\nid = 3",
            "broken:9: a distance of 255",
        ),
        (
            "[[socket]]\nid = 3",
            "[distances]\nsame_socket = 9\n[[socket]]\nid = 3",
            "broken:9: a distance of 9",
        ),
        (
            "[[socket]]\nid = 3",
            "[[core_type]]\nname = \"P\"\ncapacity = 1025\n[[socket]]\nid = 3",
            "broken:10: capacity above 1024",
        ),
        (
            "[[socket]]\nid = 3",
            "[[core_type]]\nname = \"P\"\ncapacity = 0\n[[socket]]\nid = 3",
            "broken:10: a capacity of zero",
        ),
    ];
    for (from, to, message) in cases {
        let text = SMALL.replacen(from, to, 1);
        assert_ne!(text, SMALL, "`{from}` is not in the file");
        let error = MachineFile::parse("broken", &text)
            .and_then(|file| file.to_raw())
            .and_then(|raw| Topology::build(&raw, 64))
            .expect_err(&format!("{to:?} must be refused"))
            .to_string();
        assert!(error.contains(message), "{to:?}: got `{error}`");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

// Goal: a wrong shape is refused with the grammar, zero and too many CPUs with the limits.
#[test]
fn wrong_shapes_are_refused() {
    for (text, message) in [
        ("", "not counts followed by letters"),
        ("2", "not counts followed by letters"),
        ("n2", "each letter needs a count"),
        ("2c2n", "in the order n, l, c, t"),
        ("2n2n", "in the order n, l, c, t"),
        ("4l4b", "in the order n, l, c, t"),
        ("2x", "in the order n, l, c, t"),
        (
            "0n2c",
            "the count before `n` must be from 1 to 4096, found `0n2c`",
        ),
        ("4b0l", "the count before `l` must be from 1 to 4096"),
        ("4097c", "4097 online CPUs"),
        (
            "99999999999c",
            "the count before `c` must be from 1 to 4096",
        ),
        ("64n65c", "4160 online CPUs"),
        ("2n2l2c2t ", "each letter needs a count"),
    ] {
        let error = shape::parse(text).expect_err(text).to_string();
        assert!(error.contains(message), "{text:?}: got `{error}`");
        assert_eq!(error.lines().count(), 1);
    }
    assert_eq!(shape::parse("4096c").unwrap().cpus.len(), 4096);
    assert_eq!(shape::parse("2n8t").unwrap().cpus.len(), 16);
}

/// The page about machine files.
fn page() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/MACHINES.md");
    std::fs::read_to_string(path).expect("readable")
}

/// The page's first file.
fn example() -> String {
    let page = page();
    let block = page.split("```toml\n").nth(1).expect("a file");
    block.split("```").next().expect("its end").into()
}

// Goal: the page's example is a machine, the one that its title says.
#[test]
fn the_pages_example_is_a_machine() {
    let raw = MachineFile::parse("MACHINES.md", &example()).and_then(|file| file.to_raw());
    let topo = Topology::build(&raw.expect("it is right"), 64).expect("a machine");
    let sizes = [
        topo.nr_cids(),
        topo.cores().len(),
        topo.llcs().len(),
        topo.nodes().len(),
        topo.tiers().len(),
    ];
    assert_eq!(sizes, [12, 10, 1, 2, 2]);
}

// Goal: the page lists the keys that the reader takes, and no others.
// Method: a key that no table has, put into each table of the example: the error names those that it has.
#[test]
fn every_key_is_on_the_page() {
    let page = page();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    let keys = rows.filter_map(|row| row.split_once('`').map(|(key, _)| key));
    let mut listed: Vec<String> = keys
        .filter(|key| !key.starts_with("--"))
        .map(String::from)
        .collect();
    let mut taken = Vec::new();
    for table in [
        "",
        "distances",
        "core_type",
        "socket",
        "socket.node",
        "socket.node.llc",
        "socket.node.llc.core",
        "memory_node",
    ] {
        let example = example();
        let wrong = match table {
            "" => format!("zzz = 1\n{example}"),
            _ => {
                let header = example
                    .lines()
                    .find(|line| line.trim_matches(['[', ']']) == table);
                let header = header.unwrap_or_else(|| panic!("{table} is in the example"));
                example.replacen(&format!("{header}\n"), &format!("{header}\nzzz = 1\n"), 1)
            }
        };
        let error = MachineFile::parse("m", &wrong).expect_err("no such key");
        let error = error.to_string();
        let expected = error.split("expected ").nth(1).expect("names of keys");
        let expected = expected.split(", found").next().expect("all of them");
        for key in expected.split('`').skip(1).step_by(2) {
            taken.push(match table {
                "" => key.to_string(),
                _ => format!("{table}.{key}"),
            });
        }
    }
    // Tables are listed by their keys; those of provenance are anybody's.
    taken.retain(|key| {
        !listed
            .iter()
            .any(|other| other.starts_with(&format!("{key}.")))
    });
    listed.retain(|key| key != "provenance.NAME");
    listed.sort_unstable();
    taken.sort_unstable();
    assert_eq!(listed, taken);
}
