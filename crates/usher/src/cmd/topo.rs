// SPDX-License-Identifier: GPL-2.0-only
//! `usher topo`: what the placement core sees of a machine.

mod json;

use std::io::{self, Write};
use std::path::PathBuf;

use clap::ValueEnum;
use usher_core::{Tables, DEFAULT_QUEUE_WIDTH};
use usher_sim::costs::Costs;
use usher_topo::{
    format_cpulist, machine, synthetic, sysfs, CidRange, Id as _, Node, Topology, MAX_SHARD_WIDTH,
};

use crate::args::SourceArgs;
use crate::exit::{Code, Failure};
use crate::out;

/// Show a machine as the placement core sees it: nodes, LLCs, shards, queues, tiers
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(flatten)]
    source: SourceArgs,

    /// The most CPUs of a shard, the unit of idle tracking
    #[arg(long, value_name = "N", default_value_t = MAX_SHARD_WIDTH)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_SHARD_WIDTH)))]
    shard_width: u32,

    /// The most CPUs for which tasks wait in one queue, as `scx_usher --queue-width`
    #[arg(long, value_name = "CPUS", default_value_t = DEFAULT_QUEUE_WIDTH)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=usher_core::MAX_CIDS as i64))]
    queue_width: u32,

    /// What to print
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,

    /// The cost table that a machine file names, for the simulator: a built-in one, or a path (with a `/` or the ending .toml), relative
    /// to the machine file
    #[arg(long, value_name = "NAME|FILE")]
    costs: Option<String>,

    /// Also write the machine as a sysfs tree, DIR/sys/devices/system/..., which must not exist
    #[arg(long, value_name = "DIR")]
    save_sysfs: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// For people
    Table,
    /// One object, schema usher-topo/1
    Json,
    /// One row per online CPU, in order of cid
    Csv,
    /// A machine file, as --machine reads it
    Machine,
    /// An hwloc synthetic string, as --synthetic reads it, if the machine is regular
    Synthetic,
}

pub fn run(args: &Args) -> Result<Code, Failure> {
    let mut raw = args.source.source().read()?;
    if let Some(costs) = &args.costs {
        Costs::load(costs)?;
        raw.costs = Some(costs.clone());
    }
    let topo = Topology::build(&raw, args.shard_width)?;
    if let Some(dir) = &args.save_sysfs {
        sysfs::write(&topo, dir)?;
    }
    let queues = queues(&topo, args.queue_width);
    let mut out = anstream::stdout().lock();
    match args.format {
        Format::Table => write_table(&mut out, &topo, &queues)?,
        Format::Json => {
            serde_json::to_writer(&mut out, &json::Json::new(&topo, args.queue_width, &queues))?;
            writeln!(out)?;
        }
        Format::Csv => write_csv(&mut out, &topo, &queues)?,
        Format::Machine => {
            let from = match args.source.is_live() {
                true => "the running machine".to_string(),
                false => args.source.words(""),
            };
            let provenance = format!("written by `usher topo` from {from}");
            write!(out, "{}", machine::write(&topo, &provenance)?)?;
        }
        Format::Synthetic => {
            let written = synthetic::write(&topo)?;
            writeln!(out, "{}", written.text)?;
            for lost in written.lost {
                let _ = writeln!(io::stderr(), "usher: a synthetic string cannot say: {lost}");
            }
        }
    }
    out.flush()?;
    Ok(Code::Fine)
}

/// The queues of several CPUs, as the placement core cuts LLCs into them.
fn queues(topo: &Topology, width: u32) -> Vec<CidRange> {
    let mut tables = Tables::from(topo);
    tables.cut_queues(width);
    let mut end = 0;
    let lengths = tables.queue.chunk_by(|a, b| a == b).map(<[u32]>::len);
    lengths
        .map(|length| {
            end += length;
            CidRange::new(end - length, end)
        })
        .collect()
}

fn cpus(topo: &Topology, cids: CidRange) -> String {
    format_cpulist(topo.cpus_in(cids).iter().map(|cpu| cpu.0))
}

/// `1 core`, `2 cores`.
fn count(number: usize, singular: &str) -> String {
    format!("{number} {singular}{}", if number == 1 { "" } else { "s" })
}

fn write_table(out: &mut impl Write, topo: &Topology, queues: &[CidRange]) -> io::Result<()> {
    if !topo.title().is_empty() {
        writeln!(out, "{}: {}", topo.name(), topo.title())?;
    }
    let parts = [
        count(topo.nr_cids(), "CPU"),
        count(topo.cores().len(), "core"),
        count(topo.llcs().len(), "LLC"),
        format!(
            "{} of at most {} CPUs",
            count(topo.shards().len(), "shard"),
            topo.shard_width()
        ),
        count(topo.nodes().len(), "node"),
        count(topo.tiers().len(), "tier"),
    ];
    writeln!(out, "{}", parts.join(", "))?;
    let widest = queues.iter().map(|cids| cids.len()).max().unwrap_or(0);
    let nr_queues = count(queues.len(), "queue");
    writeln!(out, "{nr_queues} of at most {}", count(widest, "CPU"))?;
    if !topo.offline().is_empty() {
        let offline = format_cpulist(topo.offline().iter().map(|cpu| cpu.0));
        writeln!(out, "offline CPUs, which have no cid: {offline}")?;
    }
    out::section(out, "Nodes", &node_table(topo))?;
    out::section(out, "LLCs and shards", &shard_table(topo))?;
    if queues.len() > topo.llcs().len() {
        out::section(out, "Queues", &queue_table(topo, queues))?;
    }
    if !topo.clusters().is_empty() {
        out::section(out, "L2 clusters", &cluster_table(topo))?;
    }
    out::section(out, "Tiers", &tier_table(topo))
}

fn node_table(topo: &Topology) -> comfy_table::Table {
    let header = [
        "node",
        "id",
        "cids",
        "cores",
        "LLCs",
        "distances",
        "nearest",
        "memory",
        "cpus",
    ];
    let mut table = out::table(&header, &["node", "id", "cores"]);
    for (index, node) in topo.nodes_by_id() {
        let distances: Vec<String> = node.distances.iter().map(u32::to_string).collect();
        let near: Vec<String> = node.near.iter().map(Node::to_string).collect();
        table.add_row([
            index.to_string(),
            node.id.to_string(),
            node.cids.to_string(),
            node.cores.len().to_string(),
            node.llcs.to_string(),
            distances.join(" "),
            if near.is_empty() {
                "-".into()
            } else {
                near.join(" ")
            },
            node.memory_bytes.map_or("?".into(), mib),
            if node.cids.is_empty() {
                "none".into()
            } else {
                cpus(topo, node.cids)
            },
        ]);
    }
    table
}

fn mib(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}

fn shard_table(topo: &Topology) -> comfy_table::Table {
    let header = [
        "node", "package", "LLC", "shard", "cids", "CPUs", "cores", "cpus",
    ];
    let mut table = out::table(
        &header,
        &["node", "package", "LLC", "shard", "CPUs", "cores"],
    );
    for (index, shard) in topo.shards().iter().enumerate() {
        let first = &topo[shard.cids.first()];
        let last = &topo[shard.cids.iter().next_back().unwrap_or_default()];
        let cores = last.core.index() - first.core.index() + 1;
        table.add_row([
            shard.node.to_string(),
            topo[first.package].id.to_string(),
            shard.llc.to_string(),
            index.to_string(),
            shard.cids.to_string(),
            shard.cids.len().to_string(),
            cores.to_string(),
            cpus(topo, shard.cids),
        ]);
    }
    table
}

fn queue_table(topo: &Topology, queues: &[CidRange]) -> comfy_table::Table {
    let header = ["LLC", "queue", "cids", "CPUs", "cpus"];
    let mut table = out::table(&header, &["LLC", "queue", "CPUs"]);
    for (index, cids) in queues.iter().enumerate() {
        table.add_row([
            topo[cids.first()].llc.to_string(),
            index.to_string(),
            cids.to_string(),
            cids.len().to_string(),
            cpus(topo, *cids),
        ]);
    }
    table
}

fn cluster_table(topo: &Topology) -> comfy_table::Table {
    let header = ["cluster", "LLC", "cids", "cores", "cpus"];
    let mut table = out::table(&header, &["cluster", "LLC", "cores"]);
    for (index, cluster) in topo.clusters().iter().enumerate() {
        table.add_row([
            index.to_string(),
            cluster.llc.to_string(),
            cluster.cids.to_string(),
            cluster.cores.len().to_string(),
            cpus(topo, cluster.cids),
        ]);
    }
    table
}

fn tier_table(topo: &Topology) -> comfy_table::Table {
    let header = ["tier", "capacity", "CPUs", "core types", "cpus"];
    let mut table = out::table(&header, &["tier", "capacity", "CPUs"]);
    for (index, tier) in topo.tiers().iter().enumerate() {
        let of_tier = topo
            .core_types()
            .iter()
            .filter(|kind| kind.capacity == tier.capacity);
        let types: Vec<&str> = of_tier.map(|kind| kind.name.as_str()).collect();
        table.add_row([
            index.to_string(),
            tier.capacity.to_string(),
            tier.cids.len().to_string(),
            types.join(" "),
            format_cpulist(tier.cids.iter().map(|cid| topo.cpu_of(*cid).0)),
        ]);
    }
    table
}

fn write_csv(out: &mut impl Write, topo: &Topology, queues: &[CidRange]) -> io::Result<()> {
    writeln!(
        out,
        "cid,cpu,core,thread,cluster,shard,llc,node,node_id,package,capacity,tier,core_type,queue"
    )?;
    for (cid, c) in topo.cids().iter().enumerate() {
        let cluster = c
            .cluster
            .map_or(String::new(), |cluster| cluster.to_string());
        let kind = csv_field(&topo[c.core_type].name);
        let node_id = topo[c.node].id;
        let queue = queues.partition_point(|cids| cids.end().index() <= cid);
        writeln!(
            out,
            "{cid},{},{},{},{cluster},{},{},{},{node_id},{},{},{},{kind},{queue}",
            c.cpu, c.core, c.thread, c.shard, c.llc, c.node, topo[c.package].id, c.capacity, c.tier
        )?;
    }
    Ok(())
}

/// Quotes a field that needs it (RFC 4180).
fn csv_field(field: &str) -> String {
    if field.contains([',', '"', '\n', '\r']) {
        return format!("\"{}\"", field.replace('"', "\"\""));
    }
    field.into()
}
