// SPDX-License-Identifier: GPL-2.0-only
//! One life of the scheduler: open, load, build the tables, attach; detached when dropped.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use anyhow::{anyhow, bail, Context, Result};
use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use libbpf_rs::{Link, MapCore, MapType, OpenObject};
use scx_utils::{build_id, compat, UserExitInfo};
use usher_core::{Settings, Tables};
use usher_topo::{parse_cpulist, Topology, MAX_CPU_NUMBER};

use crate::arena::{Arena, Layout};
use crate::args::{Args, Idle};
use crate::capacity::{Capacities, CapacityReport};
use crate::failure::Failure;
use crate::groups;
use crate::hints::Hinting;
use crate::record::Shape;
use crate::report::{programs, Program, Startup};
use crate::shared::{Bandwidth, GroupEntry, GroupTime, GroupsHead, HostCpu};
use crate::skel::{MainSkel, MainSkelBuilder, OpenMainSkel};

/// The arena of the scheduler that is attached now, for whoever reads statistics.
pub type Current = Arc<Mutex<Option<Arena>>>;

/// A machine as the scheduler is to see it.
struct Machine {
    /// Counts hotplug events; the kernel refuses a scheduler that missed one.
    hotplug_seq: u64,
    nr_possible: u32,
    /// One more than the highest number that a CPU may have.
    nr_numbers: usize,
    tables: Tables,
    settings: Settings,
}

impl Machine {
    fn read(args: &Args, capacities: &Capacities) -> Result<Self> {
        // Before the topology, so that no change between the two goes unnoticed.
        let hotplug_seq = hotplug_seq()?;
        let list = cpulist("/sys/devices/system/cpu/possible")?;
        let mut raw = usher_topo::sysfs::read_live()?;
        raw.set_capacities(capacities.known());
        let topo = Topology::build(&raw, args.shard_width)?;
        let mut tables = Tables::from(&topo);
        tables.cut_queues(args.queue_width);
        log::info!(
            "{} CPUs, {} LLCs, {} nodes, {} queues",
            topo.nr_cids(),
            topo.llcs().len(),
            topo.nodes().len(),
            tables.nr_queues()
        );
        Ok(Self {
            hotplug_seq,
            nr_possible: u32::try_from(list.len())?,
            nr_numbers: list.last().map_or(0, |&last| last as usize + 1),
            tables,
            settings: Settings {
                granularity: args.granularity,
                slice_ns: args.slice_us * 1000,
                patience_ns: args.patience_us() * 1000,
                soon_ns: match args.idle {
                    Idle::Usher => args.soon_us * 1000,
                    _ => 0,
                },
                cpupri: !args.no_preempt,
                capacity: !args.no_capacity,
                tier_order: args.tiers,
                fork_balance: !args.no_fork_balance,
                ..Settings::default()
            },
        })
    }

    /// Whether its CPUs are of different capacity, and that is to count.
    fn unequal(&self) -> bool {
        let mut capacities = self.tables.capacity.iter();
        let first = capacities.next();
        self.settings.capacity && capacities.any(|capacity| Some(capacity) != first)
    }

    /// Whether cores have several threads.
    fn smt(&self) -> bool {
        self.tables.core.windows(2).any(|pair| pair[0] == pair[1])
    }

    /// Whether CPUs belong to several LLCs.
    fn llcs(&self) -> bool {
        self.tables.llc.windows(2).any(|pair| pair[0] != pair[1])
    }
}

/// How often CPUs came or went since boot.
pub fn hotplug_seq() -> Result<u64> {
    number("/sys/kernel/sched_ext/hotplug_seq")
}

fn number(path: &str) -> Result<u64> {
    let text = fs::read_to_string(path).context(path.to_owned())?;
    text.trim()
        .parse()
        .with_context(|| format!("{path}: `{}` is no number", text.trim()))
}

/// CPUs as sysfs lists them, in their order.
fn cpulist(path: &str) -> Result<Vec<u32>> {
    let text = fs::read_to_string(path).context(path.to_owned())?;
    parse_cpulist(text.trim(), MAX_CPU_NUMBER)
        .map_err(|(item, what)| anyhow!("{path}: `{item}`: {what}"))
}

/// What outlives a restart: the maps that keep something for each task, by name. Tasks do not restart, and their hints
/// stay in force; their allowed CPUs are written anew when the scheduler attaches.
///
/// Nor may such a map go while CPUs do: Linux 6.18 frees it in a kernel thread that may not migrate off its
/// CPU and waits for a grace period (RCU tasks trace) that waits for the hotplug to end. If that CPU is the one
/// going offline, hotplug waits for the thread, and the machine's hotplug hangs for ever.
#[derive(Default)]
pub struct Storages(BTreeMap<OsString, OwnedFd>);

impl Storages {
    fn hand_on(&self, skel: &mut OpenMainSkel<'_>) -> Result<()> {
        for mut map in skel.open_object_mut().maps_mut() {
            if let Some(kept) = self.0.get(map.name()) {
                let reused = map.reuse_fd(kept.as_fd());
                reused.context("cannot hand on what is kept for each task")?;
            }
        }
        Ok(())
    }

    fn keep(&mut self, skel: &MainSkel<'_>) -> Result<()> {
        let maps = skel.object().maps();
        for map in maps.filter(|map| map.map_type() == MapType::TaskStorage) {
            let kept = map.as_fd().try_clone_to_owned();
            let kept = kept.context("cannot keep what is kept for each task")?;
            self.0.insert(map.name().to_owned(), kept);
        }
        Ok(())
    }
}

/// An attached scheduler.
pub struct Attached<'obj> {
    /// Dropped first: detaches.
    links: Vec<Link>,
    current: Current,
    skel: MainSkel<'obj>,
    /// What the tables are of.
    machine: Machine,
    /// The name it has in the kernel.
    pub ops: String,
    /// How long it took to get here.
    pub startup: Startup,
}

impl<'obj> Attached<'obj> {
    /// Attaches to this machine.
    pub fn start(
        args: &Args,
        hinting: &mut Hinting,
        storages: &mut Storages,
        capacities: &Capacities,
        current: Current,
        storage: &'obj mut MaybeUninit<OpenObject>,
    ) -> Result<Self> {
        let begun = Instant::now();
        let machine = Machine::read(args, capacities)?;
        let rings = crate::skel::records().then(|| Shape::of(machine.nr_numbers));
        let groups = (!args.no_groups).then(|| groups::room(machine.tables.nr_cids()));
        let layout = Layout::of(&machine.tables, &machine.settings, groups, rings)?;
        let (mut open, ops) = open(args, hinting, &machine, layout, storage)?;
        storages.hand_on(&mut open)?;
        let mut skel = open.load().context("cannot load the BPF programs")?;
        storages.keep(&skel)?;
        let load_ms = begun.elapsed().as_millis() as u64;

        let mut arena = Arena::build(
            &skel.maps.usher_arena,
            layout,
            &machine.tables,
            &machine.settings,
        )?;
        let bss = skel
            .maps
            .bss_data
            .as_mut()
            .context("the object has no .bss")?;
        bss.usher_root = arena.root() as _;
        bss.usher_host_cpus = arena.host_cpus() as _;
        if let Some(sharing) = arena.sharing() {
            let at = sharing.addresses();
            bss.usher_groups = at.groups as _;
            bss.usher_bandwidths = at.bandwidths as _;
            bss.usher_group_times = at.times as _;
        }
        if let Some(rings) = arena.rings() {
            bss.usher_copies = rings.copies() as _;
        }
        let mut links = Vec::new();
        if follow_moves(args, hinting) {
            links.push(
                skel.progs
                    .usher_migrate
                    .attach()
                    .context("cannot count migrations")?,
            );
        }
        links.extend(hinting.attach(&mut skel)?);
        links.push(attach(&mut skel)?);
        links.reverse(); // the scheduler goes first
        hinting.survey(&skel)?;
        // Not before all is well: what fails here takes the arena's memory along.
        *current.lock().expect("no reader panics") = Some(arena);
        Ok(Self {
            links,
            current,
            skel,
            machine,
            ops,
            startup: Startup {
                load_ms,
                attach_ms: begun.elapsed().as_millis() as u64 - load_ms,
            },
        })
    }

    /// What its tables are of.
    pub fn machine(&self) -> (&Tables, &Settings) {
        (&self.machine.tables, &self.machine.settings)
    }

    /// Becomes readable when the kernel ended the scheduler, or CPUs came or went.
    pub fn news(&self) -> BorrowedFd<'_> {
        self.skel.maps.usher_news.as_fd()
    }

    /// Whether CPUs came or went since the tables were built.
    pub fn cpus_changed(&self) -> Result<bool> {
        Ok(hotplug_seq()? != self.machine.hotplug_seq)
    }

    /// Whether a CPU of the tables is offline, which was about to leave when they were built: that it is gone no news tells. The kernel
    /// attaches a scheduler when no CPU is on its way.
    pub fn somebody_left(&self) -> Result<bool> {
        let online = cpulist("/sys/devices/system/cpu/online")?;
        let mut cpus = self.machine.tables.cpu.iter();
        Ok(cpus.any(|cpu| online.binary_search(cpu).is_err()))
    }

    /// Hears what the kernel said of the capacity of CPUs when the scheduler was attached. True if it said otherwise than
    /// the tables do, so that the scheduler is to start anew.
    pub fn hear_capacities(&self, capacities: &mut Capacities) -> bool {
        if !self.machine.settings.capacity {
            return false;
        }
        let current = self.current.lock().expect("no reader panics");
        let kernels = current.as_ref().map(Arena::kernels_capacities);
        capacities.learn(&self.machine.tables, &kernels.unwrap_or_default())
    }

    /// What CPUs count as, for the statistics; nothing if all count as equal because that was asked for.
    pub fn capacities(&self, capacities: &Capacities) -> Option<CapacityReport> {
        let asked = self.machine.settings.capacity;
        asked.then(|| capacities.report(&self.machine.tables))
    }

    /// Whether the kernel ended the scheduler.
    pub fn ended(&self) -> bool {
        scx_utils::uei_exited!(&self.skel, uei)
    }

    /// What each program cost so far.
    pub fn programs(&self) -> Vec<Program> {
        programs(&self.skel)
    }

    /// Detaches, if the kernel has not done so already, and says how it ended; what the kernel dumped goes to
    /// stderr.
    pub fn stop(mut self, hinting: &mut Hinting) -> Result<UserExitInfo> {
        self.links.clear();
        hinting.remember(&self.skel);
        let report = scx_utils::uei_report!(&self.skel, uei);
        report.map_err(|error| Failure::Ejected(error.to_string().replace("EXIT: ", "")).into())
    }
}

impl Drop for Attached<'_> {
    fn drop(&mut self) {
        self.links.clear();
        // The arena goes with the object.
        *self.current.lock().expect("no reader panics") = None;
    }
}

/// Opens the object and sets everything that must stand before it is loaded.
fn open<'obj>(
    args: &Args,
    hinting: &mut Hinting,
    machine: &Machine,
    layout: Layout,
    storage: &'obj mut MaybeUninit<OpenObject>,
) -> Result<(OpenMainSkel<'obj>, String)> {
    let builder = MainSkelBuilder::default();
    let mut skel = match args.libbpf.clone().into_bpf_open_opts() {
        Some(opts) => builder.open_opts(opts, storage),
        None => builder.open(storage),
    }
    .context("cannot open the BPF object")?;
    check_sizes(&skel)?;

    // A probe of the family's headers whose answer nobody here asks for; it needs function tracing.
    skel.progs.scx_lib_init_probe.set_autoload(false);
    skel.progs
        .usher_migrate
        .set_autoload(follow_moves(args, hinting));
    hinting.prepare(&mut skel)?;
    skel.maps
        .usher_arena
        .set_max_entries(layout.pages())
        .context("cannot size the arena")?;
    scx_utils::import_enums!(skel);

    let flags = idle_flags(args.idle)?;
    let ops = skel.struct_ops.usher_ops_mut();
    ops.hotplug_seq = machine.hotplug_seq;
    ops.exit_dump_len = args.exit_dump_len;
    ops.timeout_ms = args.timeout_ms;
    ops.flags |= flags;
    let uncrowds = machine.smt() && !args.no_uncrowd && args.idle == Idle::Usher;
    let keeps_nobody = machine.unequal() || uncrowds || layout.groups() > 0;
    if keeps_nobody {
        // A running task must not be kept where it is if it moves (bpf/move.bpf.h), or is throttled (bpf/throttle.bpf.h).
        ops.flags |= *compat::SCX_OPS_ENQ_LAST;
    }
    // Within one LLC nobody gains by it. 0 on kernels that do not know it.
    let queued_wakeups = match args.idle {
        Idle::Usher if machine.llcs() && !args.no_queued_wakeups => {
            *compat::SCX_OPS_ALLOW_QUEUED_WAKEUP
        }
        _ => 0,
    };
    ops.flags |= queued_wakeups;
    if requeues_from_anywhere() {
        ops.cpu_release = std::ptr::null_mut();
    } else {
        // Whom a higher class displaces is current where that callback has it queued anew, and may not leave its CPU for as long as that runs: without
        // this the kernel would not ask us, and put it back.
        ops.flags |= *compat::SCX_OPS_ENQ_MIGRATION_DISABLED;
    }
    let name = ops_name(ops.name.len());
    for (to, from) in ops.name.iter_mut().zip(name.bytes().chain([0])) {
        *to = from as _;
    }
    let rodata = skel
        .maps
        .rodata_data
        .as_mut()
        .context("the object has no .rodata")?;
    rodata.usher_idle_mode = args.idle as u32;
    rodata.usher_unequal = machine.unequal() as _;
    rodata.usher_uncrowds = uncrowds as _;
    rodata.usher_keeps_nobody = keeps_nobody as _;
    rodata.usher_queued_wakeups = (queued_wakeups != 0) as _;
    rodata.usher_follows = (machine.llcs() && !args.no_follow) as _;
    rodata.usher_nr_possible = machine.nr_possible;
    rodata.usher_nr_groups = layout.groups();
    rodata.usher_no_preempt = args.no_preempt as _;
    scx_utils::uei_set_size!(skel, usher_ops, uei);
    Ok((skel, name))
}

/// Whether the kernel lets any program put back what waits in a CPU's local queue, as bpf/main.bpf.c then does by itself.
fn requeues_from_anywhere() -> bool {
    let functions = ["scx_bpf_dsq_reenq", "scx_bpf_reenqueue_local___v2"];
    let there = |name: &&str| compat::ksym_exists(name).unwrap_or(false);
    functions.iter().any(there)
}

/// Whether the program at every migration is needed: to count, or to know where hinted tasks live.
fn follow_moves(args: &Args, hinting: &Hinting) -> bool {
    !args.no_migrations || hinting.served()
}

/// usher_<version>_<target>, as the sched_ext family names itself, cut to what the kernel stores.
fn ops_name(len: usize) -> String {
    let mut name = format!(
        "usher{}",
        build_id::ops_version_suffix(env!("CARGO_PKG_VERSION"))
    );
    name.truncate(len - 1);
    name
}

/// Both sides see the shared structures alike, or nothing is loaded.
fn check_sizes(skel: &OpenMainSkel<'_>) -> Result<()> {
    let rodata = skel
        .maps
        .rodata_data
        .as_ref()
        .context("the object has no .rodata")?;
    let here = [
        ("struct usher_host_cpu", size_of::<HostCpu>()),
        ("struct usher_group", size_of::<GroupEntry>()),
        ("struct usher_group_time", size_of::<GroupTime>()),
        ("struct usher_groups", size_of::<GroupsHead>()),
        ("struct usher_bandwidth", size_of::<Bandwidth>()),
    ];
    for ((name, here), &there) in here.into_iter().zip(&rodata.usher_sizes[1..]) {
        if here as u64 != there {
            bail!("{name} has {there} bytes in BPF and {here} here: rebuild scx_usher");
        }
    }
    Ok(())
}

/// The kernel tracks idle CPUs only for the baselines.
fn idle_flags(idle: Idle) -> Result<u64> {
    let keep = *compat::SCX_OPS_KEEP_BUILTIN_IDLE;
    let per_node = *compat::SCX_OPS_BUILTIN_IDLE_PER_NODE;
    match idle {
        Idle::Usher => Ok(0),
        Idle::Builtin => Ok(keep),
        Idle::BuiltinNode if per_node != 0 => Ok(keep | per_node),
        Idle::BuiltinNode => Err(Failure::Environment(
            "--idle builtin-node: this kernel does not track idle CPUs per node: boot Linux 6.15 or later, \
             or use --idle builtin"
                .into(),
        )
        .into()),
    }
}

fn attach(skel: &mut MainSkel<'_>) -> Result<Link> {
    skel.maps.usher_ops.attach_struct_ops().or_else(|error| {
        // Somebody else was quicker, or what the kernel says.
        crate::environment::nobody_attached(Path::new("/sys"))?;
        Err(error).context("the kernel refused the scheduler (its log may say why: dmesg)")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    // Goal: the layout of what BPF and loader share is the same. Method: the BPF compiler's sizes are in the object.
    #[test]
    fn both_sides_see_the_same_structures() {
        let mut storage = MaybeUninit::uninit();
        let skel = MainSkelBuilder::default().open(&mut storage).unwrap();
        check_sizes(&skel).unwrap();
    }

    #[test]
    fn the_name_carries_the_version_and_fits() {
        assert!(ops_name(128).starts_with(&format!("usher_{}", env!("CARGO_PKG_VERSION"))));
        assert_eq!(ops_name(8), "usher_0");
    }
}
