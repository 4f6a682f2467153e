// SPDX-License-Identifier: GPL-2.0-only
//! hwloc synthetic strings. Expectations are what lstopo 2.9 makes of the same string.

use usher_topo::{machine, shape, synthetic, Cid, Topology};

fn build(text: &str) -> Topology {
    let raw = synthetic::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
    Topology::build(&raw, 64).unwrap_or_else(|e| panic!("{text}: {e}"))
}

/// Packages, nodes, LLCs, clusters, cores, CPUs.
fn sizes(topo: &Topology) -> [usize; 6] {
    [
        topo.packages().len(),
        topo.nodes().len(),
        topo.llcs().len(),
        topo.clusters().len(),
        topo.cores().len(),
        topo.nr_cids(),
    ]
}

// Goal: levels are understood in every spelling. Method: strings with the sizes that follow from them.
#[test]
fn levels_are_understood() {
    for (text, expected) in [
        ("pack:2 numa:2 l3:4 core:8 pu:2", [2, 4, 16, 0, 128, 256]),
        (
            "Package:2 NUMANode:2 L3Cache:4(size=16777216) Core:8 PU:2",
            [2, 4, 16, 0, 128, 256],
        ),
        ("socket:2 node:1 l3u:1 l2:2 co:4 pu:1", [2, 2, 2, 4, 16, 16]),
        (
            "Package:2 Group:2 [NUMANode(memory=1073741824)] L3Cache:4 Core:8 PU:2",
            [2, 4, 16, 0, 128, 256],
        ),
        // Without caches the die, the package or the machine is the LLC; nodes split it.
        ("pack:2 die:2 core:4 pu:2", [2, 1, 4, 0, 16, 32]),
        ("pack:2 core:4 pu:2", [2, 1, 2, 0, 8, 16]),
        ("numa:2 core:4 pu:2", [1, 2, 2, 0, 8, 16]),
        ("pu:8", [1, 1, 1, 0, 8, 8]),
        ("8", [1, 1, 1, 0, 8, 8]),
        // An L2 that is the last level is no cluster; L1 and instruction caches are neither.
        ("pack:1 l2:2 core:3 pu:1", [1, 1, 2, 0, 6, 6]),
        (
            "pack:1 l3:1 l2:4 l1d:1 l1i:1 core:1 pu:2",
            [1, 1, 1, 0, 4, 8],
        ),
        ("pack:1 l2i:2 core:2 pu:1", [1, 1, 1, 0, 4, 4]),
        // A group below the LLC is a cluster, one above it is not.
        ("pack:1 l3:1 group:2 core:2 pu:1", [1, 1, 1, 2, 4, 4]),
        ("group:2 pack:1 l3:1 core:2 pu:1", [2, 1, 2, 0, 4, 4]),
        // Types left out: hwloc's own choice.
        ("2 3 4 5 6", [2, 6, 24, 0, 120, 720]),
        ("2 2 2", [2, 4, 4, 0, 8, 8]),
        ("2 2 2 2 2 2 2", [2, 4, 8, 16, 64, 128]),
        ("pack:2 core:2 2", [2, 1, 2, 0, 4, 8]),
        ("numa:2 pack:2 core:2 pu:1", [4, 2, 4, 0, 8, 8]),
        // Attributes at the beginning belong to the machine.
        ("(memory=4GB) pack:2 core:2 pu:1", [2, 1, 2, 0, 4, 4]),
        ("(memory=4GB)pack:2[numa]core:2 pu:1", [2, 2, 2, 0, 4, 4]),
    ] {
        assert_eq!(
            sizes(&build(text)),
            expected,
            "{text}: packages, nodes, LLCs, clusters, cores, cpus"
        );
    }
}

// Goal: CPU and node numbers are hwloc's. Method: strings with `indexes=`, each with the numbers lstopo
// prints in logical order.
#[test]
fn indexes_number_as_hwloc_does() {
    for (text, expected) in [
        ("pack:2 core:2 pu:2", [0, 1, 2, 3, 4, 5, 6, 7]),
        (
            "pack:2 core:2 pu:2(indexes=0,4,1,5,2,6,3,7)",
            [0, 4, 1, 5, 2, 6, 3, 7],
        ),
        (
            "pack:2 core:2 pu:2(indexes=2*4:1*2)",
            [0, 4, 1, 5, 2, 6, 3, 7],
        ),
        (
            "pack:2 core:2 pu:2(indexes=4*2:2*2:1*2)",
            [0, 4, 2, 6, 1, 5, 3, 7],
        ),
        (
            "pack:2 core:2 pu:2(indexes=4*2:2*2)",
            [0, 4, 2, 6, 1, 5, 3, 7],
        ),
        (
            "pack:2 core:2 pu:2(indexes=core:pack)",
            [0, 4, 1, 5, 2, 6, 3, 7],
        ),
        ("pack:2 core:2 pu:2(indexes=pack)", [0, 2, 4, 6, 1, 3, 5, 7]),
        (
            "numa:2 pack:2 core:2 pu:1(indexes=numa:core)",
            [0, 2, 4, 6, 1, 3, 5, 7],
        ),
        (
            "pack:2 l3:2 core:2 pu:1(indexes=l3)",
            [0, 4, 1, 5, 2, 6, 3, 7],
        ),
    ] {
        let raw = synthetic::parse(text).unwrap();
        assert_eq!(
            raw.cpus.iter().map(|cpu| cpu.cpu.0).collect::<Vec<_>>(),
            expected,
            "{text}"
        );
    }
    let raw = synthetic::parse("pack:2 l3:2 core:2 pu:2(indexes=pack:l3)").unwrap();
    let numbers: Vec<u32> = raw.cpus.iter().map(|cpu| cpu.cpu.0).collect();
    assert_eq!(
        numbers,
        [0, 4, 8, 12, 2, 6, 10, 14, 1, 5, 9, 13, 3, 7, 11, 15]
    );

    let topo = build("pack:2(indexes=4,7) numa:1(indexes=3,1) core:2 pu:1");
    assert_eq!(
        topo.packages().iter().map(|p| p.id).collect::<Vec<_>>(),
        [4, 7]
    );
    assert_eq!(
        topo.nodes().iter().map(|n| n.id).collect::<Vec<_>>(),
        [1, 3]
    );
    assert_eq!(
        topo[Cid(0)].cpu.0,
        2,
        "node 1 comes first, and has the second package's CPUs"
    );
}

// Goal: attached nodes: a CPU is in the first of the closest; the others are memory only, numbered as
// hwloc does. Method: the Xeon-Phi-like string of hwloc's manual, and one with nodes on two levels.
#[test]
fn attached_nodes_are_closest_first() {
    let topo = build("package:1 group:4 [numa(memory=2GiB)] [numa(memory=1GB)] core:16 pu:4");
    assert_eq!(sizes(&topo), [1, 8, 4, 0, 64, 256]);
    for (i, node) in topo.nodes().iter().enumerate() {
        let (cpus, bytes) = if i % 2 == 0 {
            (64, 2 << 30)
        } else {
            (0, 1_000_000_000)
        };
        assert_eq!(
            (node.id, node.cids.len(), node.memory_bytes),
            (i as u32, cpus, Some(bytes))
        );
    }
    let topo = build("pack:2 [numa] l3:2 [numa] pu:2");
    let cpus: Vec<usize> = topo.nodes().iter().map(|node| node.cids.len()).collect();
    assert_eq!(cpus, [2, 2, 0, 2, 2, 0]);
    let topo = build("[numa] [numa] pack:2 core:2 pu:1");
    assert_eq!(
        topo.nodes()
            .iter()
            .map(|n| n.cids.len())
            .collect::<Vec<_>>(),
        [4, 0]
    );
    let topo = build("pack:2 [numa(indexes=5,2)] core:2 pu:1");
    assert_eq!(
        topo.node_with_id(5).map(|node| topo[node].cids.first()),
        Some(Cid(2))
    );
}

// Goal: broken strings are refused in one line that shows the piece. Method: a table of them.
#[test]
fn broken_strings_are_refused() {
    for (text, message) in [
        ("", "no levels"),
        ("   ", "no levels"),
        ("pu:0", "a count of zero"),
        ("core:2", "the last level must be pu"),
        ("pack:2 pu:2 core:2", "the last level must be pu"),
        ("pack:2 core pu:1", "a level without a count"),
        ("pack:-2 pu:1", "the count is not a number"),
        ("pack:+2 pu:1", "the count is not a number"),
        ("pack:2x pu:1", "the count is not a number"),
        ("pack:99999999999 pu:1", "the count is not a number"),
        ("machine:2 pu:2", "the machine is implied"),
        ("tile:2 pu:2", "unknown level type"),
        ("p:2 pu:2", "unknown level type"),
        ("1:2 pu:2", "unknown level type"),
        ("l9:2 pu:2", "unknown level type"),
        ("l:2 pu:2", "unknown level type"),
        ("lé:2 pu:2", "unknown level type"),
        ("pack:2,core:2 pu:2", "the count is not a number"),
        ("pack:2 pack:2 pu:2", "several levels of type Package"),
        ("l2:2 l2:2 pu:2", "several levels of type Cache(2)"),
        ("numa:2 numa:2 pu:1", "several levels of type Numa"),
        ("pack:2 2 2", "some levels have types"),
        ("2 l3:2 2 2", "some levels have types"),
        ("1 1 1 1 1 1 1 1 1", "more than 8 levels without types"),
        (
            "numa:2 pack:2 [numa] pu:2",
            "both as a level and in brackets",
        ),
        ("pack:2 pu:2 [numa]", "cannot be attached to a pu"),
        ("pack:2 [core] pu:2", "only NUMA nodes can be attached"),
        ("pack:2 [numa:2] pu:2", "repeat them for more"),
        ("pack:2 [numa pu:2", "`[` is not closed"),
        ("pack:2(memory=1GB pu:2", "`(` is not closed"),
        ("pack:2) pu:2", "`)` without `(`"),
        ("pack:2 pu:2]", "`]` without `[`"),
        ("pack:2(foo=1) pu:2", "unknown attribute"),
        ("numa:2(memory=1XB) pu:2", "unknown unit"),
        ("numa:2(memory=GB) pu:2", "not a size"),
        ("numa:2(memory=99999999TB) pu:2", "not a size"),
        ("pack:2 pu:2(indexes=0,1,2)", "3 indexes, 3 distinct, for 4"),
        (
            "pack:2 pu:2(indexes=0,1,2,2)",
            "4 indexes, 3 distinct, for 4",
        ),
        ("pack:2 pu:2(indexes=0,1,2,99999)", "an index above 65535"),
        ("pack:2 pu:2(indexes=0;1)", "not a list"),
        ("pack:2 pu:2(indexes=1*2:1*2)", "twice or leave"),
        ("pack:2 pu:2(indexes=1*3)", "loops cover 3 of 4"),
        ("pack:2 pu:2(indexes=4*2)", "twice or leave"),
        ("pack:2 pu:2(indexes=9*0)", "loops cover 0 of 4"),
        ("pack:2 pu:2(indexes=x*2)", "loops are written"),
        ("pack:2 pu:2(indexes=core)", "a type that is no level"),
        ("pack:2 pu:2(indexes=pack:pack)", "twice or leave"),
        ("pack:4097 pu:1", "4097 online CPUs"),
        ("pack:4096 pu:2", "8192 online CPUs"),
        (
            "pack:4294967295 core:4294967295 pu:4294967295",
            "4294967295 online CPUs",
        ),
        (
            "pack:2 [numa(indexes=1,2)] l3:1 [numa(indexes=3,4)] pu:1",
            "several lists of indexes",
        ),
    ] {
        let error = synthetic::parse(text).expect_err(text).to_string();
        assert!(error.contains(message), "{text:?}: got `{error}`");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
    assert_eq!(build("pack:4096 pu:1").nr_cids(), 4096);
}

// Goal: writing loses nothing that the form can say, and says what it loses. Method: every regular
// built-in machine and some strings, written and read back; the tables must be equal, distances aside.
#[test]
fn regular_machines_round_trip() {
    let mut written = 0;
    let built_in =
        machine::builtin_names().map(|name| machine::load(name).unwrap().to_raw().unwrap());
    let strings = [
        "pack:2 numa:2 l3:4 core:8 pu:2",
        "numa:2 pack:2 l3:1 core:2 pu:1",
        "pack:2(indexes=7,4) numa:1(memory=1GiB indexes=2,9) l3:2 l2:2 core:2 pu:4",
        "pack:1 numa:1 l3:1 core:4 pu:2(indexes=7,6,5,4,3,2,1,0)",
    ];
    let strings = strings.map(|text| synthetic::parse(text).unwrap());
    for raw in built_in
        .chain(strings)
        .chain([shape::parse("3n1l5c1t").unwrap()])
    {
        let topo = Topology::build(&raw, 64).unwrap();
        let Ok(text) = synthetic::write(&topo) else {
            assert!(
                topo.tiers().len() > 1,
                "{} is regular and must be expressible",
                topo.name()
            );
            continue;
        };
        written += 1;
        let back = build(&text.text);
        assert_eq!(back.cids(), topo.cids(), "{}", text.text);
        assert_eq!(back.cores(), topo.cores());
        assert_eq!(back.clusters(), topo.clusters());
        assert_eq!(back.llcs(), topo.llcs());
        assert_eq!(back.packages(), topo.packages());
        let distances_kept = back.nodes() == topo.nodes();
        assert_eq!(
            distances_kept,
            text.lost.is_empty(),
            "{}: {:?}",
            text.text,
            text.lost
        );
    }
    assert_eq!(written, 15);
    let dgx = machine::load("dgx-b200-224").unwrap().to_raw().unwrap();
    let dgx = synthetic::write(&Topology::build(&dgx, 64).unwrap()).unwrap();
    assert_eq!(
        dgx.text,
        "pack:2 numa:1 l3:1 core:56 pu:2(indexes=2*112:1*2)"
    );
    assert_eq!(dgx.lost.len(), 1);
}

// Goal: an irregular machine is refused, with what is irregular. Method: one machine per reason.
#[test]
fn irregular_machines_are_inexpressible() {
    let mut offline = shape::parse("2n2l2c2t").unwrap();
    offline.cpus.pop();
    let memory_only = synthetic::parse("[numa] [numa] pack:2 pu:1").unwrap();
    let mut alternating = shape::parse("4n1l2c1t").unwrap();
    for cpu in &mut alternating.cpus {
        cpu.package %= 2;
    }
    for (raw, message) in [
        (shape::parse("4b4l").unwrap(), "no word for capacity"),
        (offline, "threads per core differ: 2 and 1"),
        (memory_only, "node 1 has memory only"),
        (alternating, "nodes alternate between packages"),
    ] {
        let topo = Topology::build(&raw, 64).unwrap();
        let error = synthetic::write(&topo).unwrap_err().to_string();
        assert!(error.contains(message), "got `{error}`");
    }
}
