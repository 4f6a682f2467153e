// SPDX-License-Identifier: GPL-2.0-only
//! The published proposal's form beside the map: right when all CPUs were known when it was made, wrong otherwise.

use usher_core::{CidSet, ComplementMasks, Core, Level, LevelQuery, Settings, Tables};
use usher_topo::{shape, Cid, Node, Topology};

use crate::random::Random;

fn tables() -> Tables {
    let raw = shape::parse("4n1l8c2t").expect("the shape is sound");
    Tables::from(&Topology::build(&raw, 64).expect("the machine is sound"))
}

fn all() -> CidSet {
    (0..64).map(Cid).collect()
}

/// Who is where: the model of this test.
struct Truth {
    levels: Vec<u32>,
}

impl Truth {
    fn lowest(&self, allowed: &CidSet, below: u32) -> Option<(u32, CidSet)> {
        let cids = allowed.iter().map(|cid| cid.0);
        let lower = cids.filter(|&cid| self.levels[cid as usize] < below);
        let lower: Vec<u32> = lower.collect();
        let level = lower.iter().map(|&cid| self.levels[cid as usize]).min()?;
        let at = |cid: &&u32| self.levels[**cid as usize] == level;
        Some((
            level,
            lower.iter().filter(at).map(|&cid| Cid(cid)).collect(),
        ))
    }
}

/// Random changes of level and searches; how many searches there were, and how many told of CPUs that are elsewhere.
fn phantoms(mut masks: ComplementMasks, nodes: u32, tables: &Tables) -> (u32, u32) {
    let settings = Settings {
        cpupri: true,
        ..Settings::default()
    };
    let mut core = Core::new(tables, &settings).expect("within limits");
    let mut random = Random::new(26);
    let mut truth = Truth {
        levels: vec![100; 64],
    };
    let (mut searches, mut wrong) = (0, 0);
    for cid in 0..64 {
        masks.set_level(Cid(cid), Level::new(100));
        core.set_level(Cid(cid), Level::new(100));
    }
    for _ in 0..400 {
        let (cid, level) = (random.below(64), random.pick(&[0, 1, 50, 99, 99, 100]));
        masks.set_level(Cid(cid), Level::new(level));
        core.set_level(Cid(cid), Level::new(level));
        truth.levels[cid as usize] = level;
        let allowed = if random.one_in(2) {
            all()
        } else {
            (0..64).filter(|_| random.one_in(4)).map(Cid).collect()
        };
        let below = random.pick(&[1, 60, 100]);
        let right = truth.lowest(&allowed, below);
        let query = LevelQuery {
            allowed: Some(&allowed),
            ..LevelQuery::lowest(Cid(cid), Level::new(below).expect("a level"))
        };
        match (core.find_lower(&query), &right) {
            (None, None) => {}
            (Some((found, at)), Some((level, cids))) => {
                assert!(cids.contains(found) && at.get() == *level);
            }
            (found, right) => panic!("the map says {found:?}, right is {right:?}"),
        }
        let below = Level::new(below).expect("a level");
        let home = if nodes == 1 { 0 } else { cid / 16 };
        let found = masks.find(Node(home), &allowed, below);
        searches += 1;
        wrong += u32::from(found.map(|(level, cids)| (level.get(), cids)) != right);
    }
    (searches, wrong)
}

// Goal: taken by itself the trick is right, so that what is measured of it is a fair comparison.
// Method: all CPUs known when the masks are made; every search tells of exactly the CPUs that are at the level.
#[test]
fn complete_masks_are_right() {
    let tables = tables();
    assert_eq!(
        phantoms(ComplementMasks::new(&tables, &all()), 4, &tables),
        (400, 0)
    );
    assert_eq!(
        phantoms(ComplementMasks::global(&tables), 1, &tables),
        (400, 0)
    );
}

// Goal: defect 26: CPUs that came up after the masks were made are named at levels they are not at.
// Method: one CPU was up. A phantom is named at level 0, which it never entered, and no longer once it entered and
// left; over random changes many searches are wrong, and none of the map.
#[test]
fn masks_made_before_cpus_came_up_name_phantoms() {
    let tables = tables();
    let boot: CidSet = [Cid(0)].into_iter().collect();
    let level = |number| Level::new(number).expect("a level");
    let mut masks = ComplementMasks::new(&tables, &boot);
    for cid in 0..64 {
        masks.set_level(Cid(cid), Some(level(99)));
    }
    masks.set_level(Cid(0), Some(level(0)));
    let (at, cids) = masks
        .find(Node(0), &all(), level(50))
        .expect("cid 0 is there");
    assert_eq!(at, level(0));
    assert_eq!(cids.len(), 64, "cid 0, and 63 phantoms that run at 99");
    masks.set_level(Cid(17), Some(level(0)));
    masks.set_level(Cid(17), Some(level(99)));
    let (_, cids) = masks
        .find(Node(0), &all(), level(50))
        .expect("cid 0 is there");
    assert!(!cids.contains(Cid(17)) && cids.len() == 63);
    // cid 0 is not allowed: nobody right is left, but the search ends here with phantoms.
    let mut others = all();
    others.remove(Cid(0));
    let (at, cids) = masks
        .find(Node(0), &others, level(50))
        .expect("phantoms are");
    assert_eq!((at, cids.len()), (level(0), 62));

    let (searches, wrong) = phantoms(ComplementMasks::new(&tables, &boot), 4, &tables);
    assert!(wrong * 4 > searches, "{wrong} of {searches} searches");
}
