// SPDX-License-Identifier: GPL-2.0-only
//! One life of the scheduler: open, load, build the tables, attach.

use std::fs;
use std::mem::MaybeUninit;

use anyhow::{Context, Result};
use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use libbpf_rs::{Link, OpenObject};
use scx_utils::compat;
use usher_core::{Settings, Tables};
use usher_topo::Topology;

use crate::args::{Args, Idle};
use crate::arena::{Arena, Layout};
use crate::failure::Failure;
use crate::skel::*;

pub fn run(args: &Args) -> Result<()> {
    let topo = Topology::build(&usher_topo::sysfs::read_live()?, args.shard_width)?;
    let tables = Tables::from(&topo);
    let settings = Settings { granularity: args.granularity, slice_ns: args.slice_us*1000, ..Default::default() };
    let mut storage = MaybeUninit::uninit();
    let layout = Layout::of(&tables, &settings)?;
    let mut skel = MainSkelBuilder::default().open(&mut storage)?;
    skel.progs.scx_lib_init_probe.set_autoload(false);
    scx_utils::import_enums!(skel);
    skel.maps.usher_arena.set_max_entries(layout.pages())?;
    skel.struct_ops.usher_ops_mut().hotplug_seq = fs::read_to_string("/sys/kernel/sched_ext/hotplug_seq")?.trim().parse()?;
    {
        let ro = skel.maps.rodata_data.as_mut().unwrap();
        ro.usher_nr_possible = 16;
    }
    scx_utils::uei_set_size!(skel, usher_ops, uei);
    let mut skel = skel.load()?;
    let arena = Arena::build(&skel.maps.usher_arena, layout, &tables, &settings)?;
    let bss = skel.maps.bss_data.as_mut().unwrap();
    bss.usher_root = arena.root() as _;
    bss.usher_host_cpus = arena.host_cpus() as _;
    let _m = skel.progs.usher_migrate.attach()?;
    let _l = skel.maps.usher_ops.attach_struct_ops()?;
    eprintln!("attached");
    for _ in 0..3000 {
        std::thread::sleep(std::time::Duration::from_millis(100));
        if scx_utils::uei_exited!(&skel, uei) { break; }
        if fs::exists("/tmp/stop").unwrap() { break; }
    }
    drop(_l);
    eprintln!("{:#?}", arena.counters());
    scx_utils::uei_report!(&skel, uei)?;
    Ok(())
}
