// SPDX-License-Identifier: GPL-2.0-only
//! Properties of every topology, on random machines: labels that need not nest, sparse and offline CPUs,
//! sparse and memory-only nodes, mixed SMT, LLCs wider than a shard.

use std::collections::{BTreeMap, BTreeSet};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use usher_topo::machine::{self, MachineFile};
use usher_topo::{
    cut_into_shards, hwloc, parse_cpulist, shape, synthetic, sysfs, Cid, CoreType, Cpu, Id,
    IdRange, Node, RawCpu, RawNode, RawTopology, Tier, TopoError, Topology, MAX_CPUS,
};

/// Labels of one CPU before it has a number.
type Labels = (u32, u32, u32, Option<u32>, u32, u32);

fn core_types() -> impl Strategy<Value = Vec<CoreType>> {
    vec(1..=1024_u32, 1..4).prop_map(|capacities| {
        let kinds = capacities.iter().enumerate();
        kinds
            .map(|(i, capacity)| CoreType::of_capacity(format!("t{i}"), *capacity))
            .collect()
    })
}

/// CPUs whose labels are drawn independently: levels overlap in every way.
fn tangled(nr_types: u32) -> impl Strategy<Value = Vec<Labels>> {
    (1..60_usize, 1..5_u32, 1..6_u32, 1..30_u32).prop_flat_map(move |(cpus, nodes, llcs, cores)| {
        let cluster = proptest::option::of(0..4_u32);
        vec(
            (0..3_u32, 0..nodes, 0..llcs, cluster, 0..cores, 0..nr_types),
            cpus,
        )
    })
}

/// CPUs as machines have them: whole cores of 1, 2, 4 or 8 threads of one type, some in clusters.
fn regular(nr_types: u32) -> impl Strategy<Value = Vec<Labels>> {
    let core = (
        select(vec![1, 2, 4, 8_usize]),
        0..nr_types,
        proptest::option::of(0..2_u32),
    );
    let llc = vec(core, 1..14);
    vec(vec(llc, 1..4), 1..4).prop_map(|nodes| {
        let (mut cpus, mut llc_label, mut core_label) = (Vec::new(), 0, 0);
        for (node, llcs) in (0..).zip(nodes) {
            for cores in llcs {
                for (threads, kind, cluster) in cores {
                    let cluster = cluster.map(|cluster| 2 * llc_label + cluster);
                    let labels = (node, node, llc_label, cluster, core_label, kind);
                    cpus.extend(std::iter::repeat_n(labels, threads));
                    core_label += 1;
                }
                llc_label += 1;
            }
        }
        cpus
    })
}

/// Ascending numbers from 0 or above, with gaps half of the time.
fn ascending(count: usize) -> impl Strategy<Value = Vec<u32>> {
    let gaps = prop_oneof![vec(1..=1_u32, count), vec(1..9_u32, count)];
    (0..2_u32, gaps).prop_map(|(first, gaps)| {
        gaps.iter()
            .scan(first, |next, gap| {
                Some(std::mem::replace(next, *next + gap))
            })
            .collect()
    })
}

/// Numbers for `cpus` CPUs, ascending or shuffled, and some more for offline ones.
fn numbers(cpus: usize) -> impl Strategy<Value = (Vec<u32>, Vec<u32>)> {
    const MAX_OFFLINE: usize = 4;
    ascending(cpus + MAX_OFFLINE)
        .prop_shuffle()
        .prop_flat_map(move |all| {
            let (mut online, offline) = (all[..cpus].to_vec(), all[cpus..].to_vec());
            let shuffled = online.clone();
            online.sort_unstable();
            (
                select(vec![online, shuffled]),
                subsequence(offline, 0..=MAX_OFFLINE),
            )
        })
}

fn nodes(ids: Vec<u32>) -> impl Strategy<Value = Vec<RawNode>> {
    let distance = proptest::option::of(1..255_u32);
    let memory = proptest::option::of((0..1_u64 << 30).prop_map(|kib| kib * 1024));
    let row = (vec(distance, ids.len()), memory);
    vec(row, ids.len()).prop_map(move |rows| {
        let nodes = ids.iter().zip(rows).map(|(id, (row, memory_bytes))| {
            let known = ids
                .iter()
                .zip(row)
                .filter_map(|(id, distance)| Some((*id, distance?)));
            RawNode {
                id: *id,
                distances: known.collect(),
                memory_bytes,
            }
        });
        nodes.collect()
    })
}

fn machines() -> impl Strategy<Value = RawTopology> {
    core_types().prop_flat_map(|types| {
        let nr_types = types.len() as u32;
        let labels = prop_oneof![tangled(nr_types), regular(nr_types)];
        (Just(types), labels, ascending(6)).prop_flat_map(|(types, labels, ids)| {
            let numbers = numbers(labels.len());
            (
                Just(types),
                Just(labels),
                Just(ids.clone()),
                numbers,
                nodes(ids),
            )
                .prop_map(|(core_types, labels, ids, (on, off), nodes)| {
                    let cpus = labels.into_iter().zip(on).map(|(labels, cpu)| {
                        let (package, node, llc, cluster, core, core_type) = labels;
                        let node = ids[node as usize];
                        RawCpu {
                            cpu: Cpu(cpu),
                            package,
                            node,
                            llc,
                            cluster,
                            core,
                            core_type,
                        }
                    });
                    RawTopology {
                        name: "random".into(),
                        title: "a random machine".into(),
                        costs: None,
                        cpus: cpus.collect(),
                        offline: off.into_iter().map(Cpu).collect(),
                        nodes,
                        core_types,
                    }
                })
        })
    })
}

/// Asserts that the ranges follow one another without gap or overlap and cover `0..len`.
fn assert_tiles<T: Id>(what: &str, ranges: impl Iterator<Item = IdRange<T>>, len: usize) {
    let mut next = 0;
    for range in ranges {
        assert_eq!(range.first().index(), next, "{what}: a gap or an overlap");
        next = range.end().index();
    }
    assert_eq!(next, len, "{what}: not all are covered");
}

fn check_numbering(raw: &RawTopology, topo: &Topology) {
    assert_eq!(topo.nr_cids(), raw.cpus.len());
    let online: BTreeSet<Cpu> = raw.cpus.iter().map(|cpu| cpu.cpu).collect();
    let numbered: BTreeSet<Cpu> = topo.cids().iter().map(|info| info.cpu).collect();
    assert_eq!(online, numbered);
    for (index, info) in topo.cids().iter().enumerate() {
        let cid = Cid::from_index(index);
        assert_eq!(topo.cid_of(info.cpu), Some(cid));
        assert!(topo[info.core].cids.contains(cid));
        assert!(topo[info.llc].cids.contains(cid));
        assert!(topo[info.node].cids.contains(cid));
        assert!(topo[info.shard].cids.contains(cid));
        assert!(info
            .cluster
            .is_none_or(|cluster| topo[cluster].cids.contains(cid)));
        assert!(topo[info.package].cids.contains(&cid));
        assert_eq!(
            index,
            topo[info.core].cids.first().index() + info.thread as usize
        );
    }
    for cpu in &raw.offline {
        assert_eq!(topo.cid_of(*cpu), None);
    }
}

fn check_containment(topo: &Topology) {
    let nr_cids = topo.nr_cids();
    assert_tiles("cores", topo.cores().iter().map(|core| core.cids), nr_cids);
    assert_tiles(
        "shards",
        topo.shards().iter().map(|shard| shard.cids),
        nr_cids,
    );
    assert_tiles("LLCs", topo.llcs().iter().map(|llc| llc.cids), nr_cids);
    assert_tiles("nodes", topo.nodes().iter().map(|node| node.cids), nr_cids);
    assert_tiles(
        "cores of LLCs",
        topo.llcs().iter().map(|llc| llc.cores),
        topo.cores().len(),
    );
    assert_tiles(
        "shards of LLCs",
        topo.llcs().iter().map(|llc| llc.shards),
        topo.shards().len(),
    );
    assert_tiles(
        "LLCs of nodes",
        topo.nodes().iter().map(|node| node.llcs),
        topo.llcs().len(),
    );
    assert_tiles(
        "cores of nodes",
        topo.nodes().iter().map(|n| n.cores),
        topo.cores().len(),
    );
    assert_tiles(
        "shards of nodes",
        topo.nodes().iter().map(|n| n.shards),
        topo.shards().len(),
    );
    for core in topo.cores() {
        assert!(topo[core.llc].cids.contains_range(core.cids));
        assert!(core
            .cluster
            .is_none_or(|c| topo[c].cids.contains_range(core.cids)));
        assert_eq!(topo[core.llc].node, core.node);
    }
    for shard in topo.shards() {
        assert!(topo[shard.llc].cids.contains_range(shard.cids));
        assert_eq!(topo[shard.llc].node, shard.node);
    }
    for llc in topo.llcs() {
        assert!(topo[llc.node].cids.contains_range(llc.cids));
    }
}

/// The definition of each level, two CPUs at a time: they share it if they share its label and those of
/// all levels above.
fn check_levels(raw: &RawTopology, topo: &Topology) {
    let mut cores_of_cluster: BTreeMap<_, BTreeSet<u32>> = BTreeMap::new();
    let mut parts_of_llc: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    let part = |cpu: &RawCpu| (cpu.cluster, cpu.cluster.is_none().then_some(cpu.core));
    for cpu in &raw.cpus {
        let cluster = (cpu.node, cpu.llc, part(cpu));
        cores_of_cluster
            .entry(cluster)
            .or_default()
            .insert(cpu.core);
        parts_of_llc
            .entry((cpu.node, cpu.llc))
            .or_default()
            .insert(part(cpu));
    }
    for a in &raw.cpus {
        let found_a = &topo[topo.cid_of(a.cpu).unwrap()];
        assert_eq!(topo[found_a.node].id, a.node);
        assert_eq!(topo[found_a.package].id, a.package);
        assert_eq!(found_a.core_type.0, a.core_type);
        let nontrivial = a.cluster.is_some()
            && cores_of_cluster[&(a.node, a.llc, part(a))].len() > 1
            && parts_of_llc[&(a.node, a.llc)].len() > 1;
        assert_eq!(
            found_a.cluster.is_some(),
            nontrivial,
            "cluster of cpu {}",
            a.cpu
        );
        for b in &raw.cpus {
            let found_b = &topo[topo.cid_of(b.cpu).unwrap()];
            let same_llc = (a.node, a.llc) == (b.node, b.llc);
            let same_core = same_llc && part(a) == part(b) && a.core == b.core;
            assert_eq!(
                found_a.llc == found_b.llc,
                same_llc,
                "cpus {} and {}",
                a.cpu,
                b.cpu
            );
            assert_eq!(
                found_a.core == found_b.core,
                same_core,
                "cpus {} and {}",
                a.cpu,
                b.cpu
            );
            if nontrivial {
                let same_cluster = same_llc && part(a) == part(b);
                assert_eq!(found_a.cluster == found_b.cluster, same_cluster);
            }
        }
    }
}

fn check_order(topo: &Topology) {
    let first_cpu = |range: IdRange<Cid>| topo.cpus_in(range).first().copied();
    for node in topo.nodes() {
        let llcs = &topo.llcs()[node.llcs.as_usize()];
        assert!(
            llcs.is_sorted_by_key(|llc| first_cpu(llc.cids)),
            "LLCs by lowest cpu"
        );
    }
    for cluster in topo.clusters() {
        let cores = &topo.cores()[cluster.cores.as_usize()];
        assert!(
            cores.is_sorted_by_key(|core| first_cpu(core.cids)),
            "cores by lowest cpu"
        );
    }
    for core in topo.cores() {
        let threads = &topo.cids()[core.cids.as_usize()];
        assert!(threads.is_sorted_by_key(|info| info.cpu), "threads by cpu");
    }
    assert!(topo.nodes().is_sorted_by_key(|node| node.id), "nodes by id");
    for (own, node) in topo.nodes_by_id() {
        let others: BTreeSet<Node> = node.near.iter().copied().collect();
        assert_eq!(others.len(), topo.nodes().len() - 1);
        assert!(!others.contains(&own));
        let by_distance = |other: &Node| (topo.distance(own, *other), topo[*other].id);
        assert!(
            node.near.is_sorted_by_key(by_distance),
            "nearest first, then lowest id"
        );
    }
    assert!(topo
        .tiers()
        .windows(2)
        .all(|pair| pair[0].capacity > pair[1].capacity));
    for (index, tier) in topo.tiers().iter().enumerate() {
        assert!(!tier.cids.is_empty() && tier.cids.is_sorted());
        for cid in &tier.cids {
            assert_eq!(
                (topo[*cid].tier, topo[*cid].capacity),
                (Tier::from_index(index), tier.capacity)
            );
        }
    }
    assert_eq!(
        topo.tiers()
            .iter()
            .map(|tier| tier.cids.len())
            .sum::<usize>(),
        topo.nr_cids()
    );
}

fn check_shards(topo: &Topology, width: usize) {
    for shard in topo.shards() {
        assert!((1..=width).contains(&shard.cids.len()));
    }
    for core in topo.cores() {
        let shards: BTreeSet<_> = core.cids.iter().map(|cid| topo[cid].shard).collect();
        if core.cids.len() <= width {
            assert_eq!(shards.len(), 1, "a core is cut");
        } else {
            assert_eq!(shards.len(), core.cids.len().div_ceil(width));
            for shard in shards {
                assert!(
                    core.cids.contains_range(topo[shard].cids),
                    "a cut core shares its shard"
                );
            }
        }
    }
}

/// What sysfs keeps of a core type.
fn without_type_names(topo: &Topology) -> Topology {
    let mut raw = topo.to_raw();
    let capacities: BTreeSet<u32> = topo.cids().iter().map(|info| info.capacity).collect();
    let capacities: Vec<u32> = capacities.into_iter().rev().collect();
    for (cpu, info) in raw.cpus.iter_mut().zip(topo.cids()) {
        let kind = capacities
            .iter()
            .position(|capacity| *capacity == info.capacity);
        cpu.core_type = kind.unwrap() as u32;
    }
    raw.core_types = capacities
        .iter()
        .map(|capacity| CoreType::of_capacity("", *capacity))
        .collect();
    (raw.name, raw.title) = (String::new(), String::new());
    Topology::build(&raw, topo.shard_width()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    // Goal: the promises of the crate's documentation. Method: random machines and shard widths against
    // definitions written down independently of the builder.
    #[test]
    fn topologies_keep_their_promises(raw in machines(), width in 1..=64_u32) {
        let topo = Topology::build(&raw, width).unwrap();
        check_numbering(&raw, &topo);
        check_containment(&topo);
        check_levels(&raw, &topo);
        check_order(&topo);
        check_shards(&topo, width as usize);
    }

    // Goal: as few shards as possible, and none much fuller than another. Method: cores of at most
    // `width` threads; the fewest is found by dynamic programming, and halving the fullest shard must not
    // be possible by moving one core.
    #[test]
    fn shards_are_few_and_even(
        cores in vec(select(vec![1, 2, 4, 8_usize]), 1..100),
        width in 8..=64_usize,
    ) {
        let shards = cut_into_shards(&cores, width);
        prop_assert_eq!(shards.iter().sum::<usize>(), cores.iter().sum::<usize>());
        // fewest[i]: the fewest shards that hold the first i cores.
        let mut fewest = vec![0];
        for end in 1..=cores.len() {
            let fits = |start: &usize| cores[*start..end].iter().sum::<usize>() <= width;
            let best = (0..end).filter(fits).map(|start: usize| fewest[start] + 1).min().unwrap();
            fewest.push(best);
        }
        prop_assert_eq!(shards.len(), fewest[cores.len()]);
        let fullest = shards.iter().max().unwrap();
        let even = cores.iter().sum::<usize>().div_ceil(shards.len());
        prop_assert!(*fullest < even + 8, "{:?} could be evener", shards);
    }

    // Goal: to_raw() and the machine file lose nothing. Method: build, write, read, build, compare whole
    // tables; what the file cannot say must be refused for the reason it gives.
    #[test]
    fn random_machines_round_trip(raw in machines(), width in 1..=64_u32) {
        let topo = Topology::build(&raw, width).unwrap();
        prop_assert_eq!(&Topology::build(&topo.to_raw(), width).unwrap(), &topo);
        match machine::write(&topo, "random") {
            Ok(text) => {
                let back = MachineFile::parse("written", &text).and_then(|file| file.to_raw());
                let back = back.unwrap_or_else(|e| panic!("{e}\n{text}"));
                prop_assert_eq!(&Topology::build(&back, width).unwrap(), &topo, "{}", text);
            }
            Err(TopoError::Inexpressible { why, .. }) => {
                let odd_core = topo.cores().iter().any(|core| {
                    let threads = &topo.cids()[core.cids.as_usize()];
                    threads.iter().any(|info| info.core_type != threads[0].core_type)
                });
                let odd_llc = topo.cids().iter().any(|info| info.package != topo[info.llc].package);
                prop_assert!(odd_core || odd_llc, "{}", why);
            }
            Err(error) => panic!("{error}"),
        }
        if let Ok(written) = synthetic::write(&topo) {
            let back = Topology::build(&synthetic::parse(&written.text).unwrap(), width).unwrap();
            prop_assert_eq!(back.cores(), topo.cores());
            prop_assert_eq!(back.llcs(), topo.llcs());
            prop_assert_eq!(back.clusters(), topo.clusters());
        }
    }

    // Goal: no input makes a reader panic. Method: strings that look like the real thing, and the real
    // thing with pieces replaced.
    #[test]
    fn readers_never_panic(
        synthetic_text in "([(\\[]?(pack|numa|l[0-9]|core|pu|group|die)?:?[0-9]{0,5}[)\\]]? ?){0,6}",
        attributes in "pu:[1-9]\\((indexes|memory)=[0-9*:,a-z]{0,12}\\)",
        shape_text in "([0-9]{0,12}[nlctbx]?){0,5}",
        list in "[0-9,:/ -]{0,12}",
        cut in 0..2000_usize,
        len in 0..20_usize,
        patch in "[<>/=\"0-9a-z\\[\\]{}\n]{0,8}",
    ) {
        let _ = synthetic::parse(&synthetic_text);
        let _ = synthetic::parse(&attributes);
        let _ = shape::parse(&shape_text);
        let _ = parse_cpulist(&list, 65_535);
        let mangle = |text: &str| {
            let start = text.floor_char_boundary(cut % text.len());
            let end = text.floor_char_boundary((start + len).min(text.len()));
            format!("{}{patch}{}", &text[..start], &text[end..])
        };
        let file = mangle(machine::builtin_text("hybrid-8p16e").unwrap());
        let _ = MachineFile::parse("mangled", &file)
            .and_then(|file| file.to_raw())
            .and_then(|raw| Topology::build(&raw, 64));
        let xml = mangle(include_str!("captures/6arm64-3cl2c-offline+cxl.v3.xml"));
        let _ = hwloc::parse("mangled", &xml).and_then(|raw| Topology::build(&raw, 64));
    }
}

proptest! {
    // Fewer and smaller, because each case writes hundreds of files.
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]

    // Goal: a written sysfs tree is the machine. Method: write, read, compare; names of core types aside.
    #[test]
    fn sysfs_trees_round_trip(mut raw in machines()) {
        raw.cpus.truncate(20);
        let topo = Topology::build(&raw, 64).unwrap();
        let dir = tempfile::tempdir().unwrap();
        sysfs::write(&topo, dir.path()).unwrap();
        let back = Topology::build(&sysfs::read(dir.path()).unwrap(), 64).unwrap();
        prop_assert_eq!(without_type_names(&back), without_type_names(&topo));
        prop_assert!(sysfs::write(&topo, dir.path()).is_err(), "an existing tree is overwritten");
    }
}

// Goal: the largest machines. Method: 4,096 CPUs in several forms build, 4,097 do not; a topology of the
// largest size keeps its promises too.
#[test]
fn limits_are_exact() {
    for text in ["4096c", "512n8t", "1l512c8t", "64n8l4c2t"] {
        let raw = shape::parse(text).unwrap();
        let topo = Topology::build(&raw, 64).unwrap();
        assert_eq!(topo.nr_cids(), MAX_CPUS, "{text}");
        check_numbering(&raw, &topo);
        check_containment(&topo);
        check_shards(&topo, 64);
    }
    let mut raw = shape::parse("4096c").unwrap();
    raw.cpus.push(RawCpu {
        cpu: Cpu(4096),
        ..raw.cpus[0]
    });
    let error = Topology::build(&raw, 64).unwrap_err();
    assert!(
        matches!(error, TopoError::TooManyCpus { nr_cpus: 4097, .. }),
        "{error}"
    );
    raw.cpus.clear();
    assert!(matches!(
        Topology::build(&raw, 64).unwrap_err(),
        TopoError::NoCpus { .. }
    ));
    let raw = shape::parse("2c").unwrap();
    for width in [0, 65] {
        let error = Topology::build(&raw, width).unwrap_err();
        assert!(matches!(error, TopoError::ShardWidth { .. }), "{error}");
    }
}

type Change = fn(&mut RawTopology);

// Goal: descriptions that contradict themselves are refused. Method: one contradiction at a time.
#[test]
fn contradictions_are_refused() {
    let good = shape::parse("2n1l2c1t").unwrap();
    let cases: [(&str, Change); 7] = [
        ("cpu 0 appears twice", |raw| raw.cpus[1].cpu = Cpu(0)),
        ("cpu 3 is both online and offline", |raw| {
            raw.offline.push(Cpu(3))
        }),
        ("cpu number 70000 is above 65535", |raw| {
            raw.cpus[0].cpu = Cpu(70_000)
        }),
        ("cpu 1 is of core type 9", |raw| raw.cpus[1].core_type = 9),
        ("core type cpu has capacity 1025", |raw| {
            raw.core_types[0].capacity = 1025
        }),
        ("core type cpu has capacity 0", |raw| {
            raw.core_types[0].capacity = 0
        }),
        ("node 1 appears twice", |raw| raw.nodes[0].id = 1),
    ];
    for (message, break_it) in cases {
        let mut raw = good.clone();
        break_it(&mut raw);
        let error = Topology::build(&raw, 64).unwrap_err().to_string();
        assert!(error.contains(message), "got `{error}`");
    }
}

// Goal: cutting into shards. Method: the cases of the documentation and the corners, by hand.
#[test]
fn shards_are_cut_as_documented() {
    let cut = |cores: usize, threads: usize, width| cut_into_shards(&vec![threads; cores], width);
    assert_eq!(cut(56, 2, 64), [56, 56]);
    assert_eq!(cut(120, 2, 64), [60; 4]);
    assert_eq!(cut(32, 2, 64), [64]);
    assert_eq!(cut(33, 2, 64), [34, 32]);
    assert_eq!(cut(8, 2, 1), [1; 16]);
    assert_eq!(cut(2, 8, 4), [4; 4]);
    assert_eq!(cut(1, 8, 3), [2, 3, 3]);
    assert_eq!(cut(3, 1, 2), [2, 1]);
    // A wide core among narrow ones has its own shards.
    assert_eq!(cut_into_shards(&[1, 1, 8, 1, 1], 4), [2, 4, 4, 2]);
    // 3 threads after an offlined sibling.
    assert_eq!(cut_into_shards(&[4, 3, 4, 4], 8), [7, 8]);
}
