// SPDX-License-Identifier: GPL-2.0-only
//! Captured machines: each is a capture, an expected rendering, and this loop.
//!
//! `captures/NAME.sysfs` is a sysfs tree as lines of `path=content` below `sys`; `captures/NAME.xml` is
//! hwloc XML; `captures/NAME.expected` is what usher must make of it, one line per core, LLC, shard and
//! node. The first figure of a name is the number of CPUs online. After a deliberate change, run with
//! `USHER_UPDATE_EXPECTED=1` and read the difference.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use usher_topo::{format_cpulist, hwloc, sysfs, CidRange, RawTopology, TopoError, Topology};

/// Unpacks a capture into real files below `dir`.
fn unpack(text: &str, dir: &Path) {
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (path, content) = line.split_once('=').expect("lines are path=content");
        let path = dir.join("sys").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{content}\n")).unwrap();
    }
}

fn read(capture: &Path) -> Result<RawTopology, TopoError> {
    if capture.extension().unwrap() == "xml" {
        return hwloc::read(capture);
    }
    let dir = tempfile::tempdir().unwrap();
    unpack(&fs::read_to_string(capture).unwrap(), dir.path());
    sysfs::read(dir.path())
}

fn captures() -> Vec<PathBuf> {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/captures");
    let mut paths: Vec<PathBuf> = fs::read_dir(dir)
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    paths.retain(|path| path.extension().unwrap() != "expected");
    paths.sort();
    paths
}

/// Everything a scheduler would look at, in a form that a person can check.
fn render(topo: &Topology) -> String {
    let cpus = |range: CidRange| format_cpulist(topo.cpus_in(range).iter().map(|cpu| cpu.0));
    let mut out = String::new();
    let offline = format_cpulist(topo.offline().iter().map(|cpu| cpu.0));
    writeln!(out, "cpus={} offline={offline}", topo.nr_cids()).unwrap();
    for (node, info) in topo.nodes_by_id() {
        let bytes = info
            .memory_bytes
            .map_or("?".into(), |bytes| bytes.to_string());
        writeln!(
            out,
            "node {node} id={} cids={} distances={:?} near={:?} memory_bytes={bytes}",
            info.id,
            info.cids,
            info.distances,
            info.near.iter().map(|node| node.0).collect::<Vec<_>>(),
        )
        .unwrap();
    }
    for (i, llc) in topo.llcs().iter().enumerate() {
        let package = topo[llc.package].id;
        writeln!(
            out,
            "llc {i} node={} package={package} cpus={}",
            llc.node,
            cpus(llc.cids)
        )
        .unwrap();
    }
    for (i, shard) in topo.shards().iter().enumerate() {
        writeln!(out, "shard {i} llc={} cids={}", shard.llc, shard.cids).unwrap();
    }
    for (i, cluster) in topo.clusters().iter().enumerate() {
        writeln!(
            out,
            "cluster {i} llc={} cpus={}",
            cluster.llc,
            cpus(cluster.cids)
        )
        .unwrap();
    }
    for (i, core) in topo.cores().iter().enumerate() {
        let first = &topo[core.cids.first()];
        let kind = &topo[first.core_type].name;
        let (capacity, tier) = (first.capacity, first.tier);
        let (cids, cpus) = (core.cids, cpus(core.cids));
        writeln!(
            out,
            "core {i} cids={cids} cpus={cpus} capacity={capacity} tier={tier} type={kind}"
        )
        .unwrap();
    }
    out
}

// Goal: each reader makes of each captured machine what a person worked out for it. Method: render and
// compare with the file beside the capture.
#[test]
fn captures_match_their_expected_output() {
    let captures = captures();
    assert!(captures.len() >= 12, "captures are missing");
    for capture in captures {
        let raw = read(&capture).unwrap_or_else(|e| panic!("{e}"));
        let topo = Topology::build(&raw, 64).unwrap();
        let found = render(&topo);
        let name = capture.file_name().unwrap().to_str().unwrap();
        let digits = name.find(|c: char| !c.is_ascii_digit()).unwrap();
        assert_eq!(topo.nr_cids(), name[..digits].parse().unwrap(), "{name}");
        let expected_path = capture.with_extension("expected");
        if std::env::var_os("USHER_UPDATE_EXPECTED").is_some() {
            fs::write(&expected_path, &found).unwrap();
        }
        let expected = fs::read_to_string(&expected_path).unwrap_or_default();
        assert_eq!(
            found,
            expected,
            "{name} differs from {}",
            expected_path.display()
        );
    }
}

// Goal: a capture that lost the topology of a CPU is no machine with one more core. Method: a tree that usher writes, without that directory, and
// without all of them, as kernels are that tell none.
#[test]
fn incomplete_trees_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let raw = usher_topo::machine::load("2n2l2c2t")
        .unwrap()
        .to_raw()
        .unwrap();
    let topo = Topology::build(&raw, 64).unwrap();
    sysfs::write(&topo, dir.path()).unwrap();
    let topology = |cpu| {
        dir.path()
            .join(format!("sys/devices/system/cpu/cpu{cpu}/topology"))
    };
    fs::remove_dir_all(topology(5)).unwrap();
    let error = sysfs::read(dir.path()).unwrap_err();
    let error = format!("{error}: {:?}", std::error::Error::source(&error));
    assert!(
        error.contains("cpu5/topology") && error.contains("check that the capture is complete"),
        "{error}"
    );
    for cpu in (0..16).filter(|&cpu| cpu != 5) {
        fs::remove_dir_all(topology(cpu)).unwrap();
    }
    assert_eq!(sysfs::read(dir.path()).unwrap().cpus.len(), 16);
}

// Goal: a machine described twice is the same machine. Method: the XML that hwloc made of a sysfs tree
// of a built-in machine, against that machine.
#[test]
fn hwloc_and_usher_agree_on_sysfs_trees() {
    for (capture, machine) in [
        ("32intel64-8c2t+16c-hybrid.v2.xml", "hybrid-8p16e"),
        ("16x86-2n2l2c2t.v2.xml", "2n2l2c2t"),
    ] {
        let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/captures");
        let raw = hwloc::read(&Path::new(dir).join(capture)).unwrap();
        let by_xml = Topology::build(&raw, 64).unwrap();
        let raw = usher_topo::machine::load(machine)
            .unwrap()
            .to_raw()
            .unwrap();
        let by_file = Topology::build(&raw, 64).unwrap();
        assert_eq!(by_xml.cores(), by_file.cores(), "{capture}");
        assert_eq!(by_xml.clusters(), by_file.clusters());
        assert_eq!(by_xml.llcs(), by_file.llcs());
        assert_eq!(by_xml.nodes(), by_file.nodes());
        assert_eq!(by_xml.tiers(), by_file.tiers());
    }
}

// Goal: a captured tree is found at `DIR`, `DIR/sys` and `DIR/sys/devices/system`.
#[test]
fn captured_trees_are_found_at_any_prefix() {
    let dir = tempfile::tempdir().unwrap();
    unpack(
        "devices/system/cpu/online=0-1\ndevices/system/cpu/cpu0/cpu_capacity=512",
        dir.path(),
    );
    for sub in ["", "sys", "sys/devices/system"] {
        let raw = sysfs::read(&dir.path().join(sub)).unwrap();
        assert_eq!(raw.cpus.len(), 2, "{sub:?}");
        assert_eq!(raw.core_types.len(), 2, "{sub:?}");
    }
}

// Goal: a broken tree is refused with the name of the file. Method: a small good tree with one file
// replaced.
#[test]
fn broken_trees_are_refused() {
    let good = "devices/system/cpu/online=0-3\n\
                devices/system/cpu/cpu0/cpu_capacity=1024\n\
                devices/system/node/node0/cpulist=0-3\n\
                devices/system/node/node0/distance=10\n";
    for (line, message) in [
        (
            "devices/system/cpu/online=0-x",
            "cpu/online: not a list (not a number or a range)",
        ),
        (
            "devices/system/cpu/online=0-99999999999",
            "cpu/online: not a list",
        ),
        ("devices/system/cpu/online=0-65535", "65536 online CPUs"),
        (
            "devices/system/cpu/cpu0/cpu_capacity=1025",
            "cpu0/cpu_capacity: capacity out of range",
        ),
        (
            "devices/system/cpu/cpu0/cpu_capacity=big",
            "cpu0/cpu_capacity: not a number",
        ),
        (
            "devices/system/cpu/cpu1/topology/core_cpus_list=1,?",
            "cpu1/topology/core_cpus_list: ",
        ),
        (
            "devices/system/cpu/cpu1/topology/physical_package_id=x",
            "physical_package_id: not a num",
        ),
        (
            "devices/system/cpu/cpu1/cache/index3/level=L3",
            "cpu1/cache/index3/level: not a number",
        ),
        (
            "devices/system/node/node0/distance=10 20",
            "distance: 2 distances for 1 nodes",
        ),
        (
            "devices/system/node/node0/distance=near",
            "distance: not a row of numbers",
        ),
        (
            "devices/system/node/node0/meminfo=Node 0 MemTotal: lots kB",
            "MemTotal is not a number",
        ),
        (
            "devices/system/cpu/cpu99999999/online=1",
            "cpu99999999: number too large",
        ),
        (
            "devices/system/cpu/online/x=1",
            "cpu/online: Is a directory",
        ),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let (path, _) = line.split_once('=').unwrap();
        let kept: String = good
            .lines()
            .filter(|good| !good.starts_with(path.trim_end_matches("/x")))
            .map(|line| line.to_string() + "\n")
            .collect();
        unpack(&kept, dir.path());
        if path.contains("/topology/") {
            for cpu in ["cpu0", "cpu1", "cpu2", "cpu3"] {
                let package = "topology/physical_package_id=0";
                unpack(&format!("devices/system/cpu/{cpu}/{package}"), dir.path());
            }
        }
        unpack(line, dir.path());
        let built = sysfs::read(dir.path()).and_then(|raw| Topology::build(&raw, 64));
        let error = built.expect_err(line).to_string();
        assert!(error.contains(message), "{line}: got `{error}`");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("sys/devices/system/cpu")).unwrap();
    let error = sysfs::read(dir.path()).unwrap_err();
    assert!(
        error.to_string().contains("no CPU topology here"),
        "{error}"
    );
    assert!(!error.is_environment(), "the user named this directory");
}

// Goal: broken XML is refused with file and line. Method: the smallest v3 file, broken in one place.
#[test]
fn broken_xml_is_refused() {
    let good = r#"<?xml version="1.0"?>
<topology version="3.0">
<object type="Machine" cpuset="0x3" complete_cpuset="0x7">
<object type="NUMANode" os_index="0" cpuset="0x3" local_memory="1024"/>
<object type="PU" os_index="0"/>
<object type="PU" os_index="1"/>
</object>
<distances2 type="NUMANode" kind="5" indexing="os"><indexes>0</indexes><u64values>10</u64values></distances2>
<cpukind cpuset="0x1"><info name="LinuxCapacity" value="500"/></cpukind>
</topology>"#;
    let topo = Topology::build(&hwloc::parse("good.xml", good).unwrap(), 64).unwrap();
    assert_eq!(
        (topo.nr_cids(), topo.tiers().len(), topo.offline().len()),
        (2, 2, 1)
    );
    for (from, to, message) in [
        ("</topology>", "", "not XML: the root node was opened"),
        (
            "<topology version=\"3.0\">",
            "<topology>",
            "bad.xml:2: hwloc XML of version 1",
        ),
        (
            "3.0",
            "4.0",
            "bad.xml:2: hwloc XML of unknown version, found `4.0`",
        ),
        ("topology", "html", "not XML"),
        (
            "type=\"PU\" os_index=\"0\"",
            "type=\"PU\"",
            "bad.xml:5: PU without os_index",
        ),
        (
            "type=\"PU\" os_index=\"0\"",
            "os_index=\"0\"",
            "bad.xml:5: object without type",
        ),
        (
            "os_index=\"1\"",
            "os_index=\"one\"",
            "bad.xml:6: os_index is not a number, found `one`",
        ),
        (
            "os_index=\"1\"",
            "os_index=\"99999\"",
            "bad.xml:6: PU with os_index above 65535",
        ),
        ("os_index=\"1\"", "os_index=\"0\"", "cpu 0 appears twice"),
        (
            "\"0x3\" local",
            "\"0xf...f\" local",
            "bad.xml:4: cpuset is not a set",
        ),
        (
            "\"1024\"",
            "\"1KB\"",
            "bad.xml:4: local_memory is not a number",
        ),
        (
            "<u64values>10",
            "<u64values>10 20",
            "bad.xml:8: 2 distances for 1 nodes",
        ),
        (
            "<u64values>10",
            "<u64values>-1",
            "bad.xml:8: not a number, or out of range",
        ),
        (
            "value=\"500\"",
            "value=\"2000\"",
            "bad.xml:9: capacity above 1024",
        ),
        (
            "value=\"500\"",
            "value=\"\"",
            "bad.xml:9: value is not a number",
        ),
    ] {
        let bad = good.replacen(from, to, 1);
        assert_ne!(bad, good, "`{from}` is not in the file");
        let built = hwloc::parse("bad.xml", &bad).and_then(|raw| Topology::build(&raw, 64));
        let error = built.expect_err(to).to_string();
        assert!(error.contains(message), "{to}: got `{error}`");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
    for (text, message) in [
        ("", "bad.xml:1: not XML"),
        ("<a/>", "bad.xml:1: not an hwloc file, found `a`"),
        ("<topology version=\"2.0\"/>", "bad.xml:1: no objects"),
        (
            "<topology version=\"2.0\"><object type=\"Machine\"/></topology>",
            "no online CPU",
        ),
    ] {
        let built = hwloc::parse("bad.xml", text).and_then(|raw| Topology::build(&raw, 64));
        let error = built.expect_err(text).to_string();
        assert!(error.contains(message), "{text}: got `{error}`");
    }
    let many: String = (0..4097)
        .map(|i| format!("<object type=\"PU\" os_index=\"{i}\"/>"))
        .collect();
    let many = format!("<topology version=\"2.0\">{many}</topology>");
    let error = hwloc::parse("bad.xml", &many).unwrap_err().to_string();
    assert!(error.contains("4097 online CPUs"), "{error}");
}

// Goal: kinds that differ in frequency only get capacities if they are of different core types. Method:
// hwloc's two ways to tell kinds apart.
#[test]
fn capacities_are_guessed_from_core_types_only() {
    let file = |kinds: &str| {
        let text = format!(
            "<topology version=\"2.0\"><object type=\"PU\" os_index=\"0\"/>\
             <object type=\"PU\" os_index=\"1\"/>{kinds}</topology>"
        );
        let topo = Topology::build(&hwloc::parse("kinds.xml", &text).unwrap(), 64).unwrap();
        topo.cids()
            .iter()
            .map(|info| info.capacity)
            .collect::<Vec<_>>()
    };
    let kind = |cpuset: &str, core_type: &str, mhz: u32| {
        format!(
            "<cpukind cpuset=\"{cpuset}\"><info name=\"CoreType\" value=\"{core_type}\"/>\
             <info name=\"FrequencyMaxMHz\" value=\"{mhz}\"/></cpukind>"
        )
    };
    let favoured = kind("0x1", "IntelCore", 5000) + &kind("0x2", "IntelCore", 4000);
    assert_eq!(file(&favoured), [1024, 1024]);
    let hybrid = kind("0x1", "IntelAtom", 3000) + &kind("0x2", "IntelCore", 4000);
    assert_eq!(file(&hybrid), [768, 1024]);
}
