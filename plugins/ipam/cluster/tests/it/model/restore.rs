//! The store is put back to a copy, and the nodes write back what they hold, before anything else is written.

use cluster::protocol;
use host_local::address::Address;

use super::{Bounds, Fault, World, address};

impl World {
    pub(super) fn restore(&self, bounds: &Bounds, all: &mut Vec<(String, World)>) {
        if self.restores > 0 && self.copy.is_none() {
            let mut world = self.clone();
            world.copy = Some(self.store.clone());
            all.push(("the store is copied".to_owned(), world));
        }
        // The operator has stopped ADD on all nodes.
        let is_still = self.machines.iter().all(|machine| machine.adding.is_none());
        if let Some(copy) = self.copy.as_ref().filter(|copy| self.restores > 0 && is_still && **copy != self.store) {
            let mut world = self.clone();
            world.restores -= 1;
            for at in 0..self.machines.len() {
                world.give_up(at);
            }
            world.mail.clear();
            world.write(copy.clone());
            if bounds.fault != Fault::NoRepair {
                let with_view = |at: &usize| self.machines[*at].view.is_some();
                world.repairing = (0..self.machines.len()).filter(with_view).map(|at| (at, 2)).collect();
            }
            all.push(("the store is restored".to_owned(), world));
        }
        for (at, rounds) in &self.repairing {
            let mut world = self.clone();
            match rounds {
                // Each has written back once before one does so again.
                _ if self.repairing.values().any(|other| other > rounds) => continue,
                1 => drop(world.repairing.remove(at)),
                more => drop(world.repairing.insert(*at, more - 1)),
            }
            world.repair(*at, bounds);
            all.push((format!("{at} writes back what it holds"), world));
        }
    }

    fn repair(&mut self, at: usize, bounds: &Bounds) {
        let machine = &self.machines[at];
        let me = machine.me(at, &self.store, bounds.fault);
        let Ok(entered) = protocol::enter(&self.store, &me) else { return };
        let held: Vec<Address> = machine.reserved.iter().copied().map(address).collect();
        let memory = machine.view.as_ref().unwrap().memory();
        let state = entered.unwrap_or_else(|| self.store.clone());
        let (next, _) = protocol::repair(&state, &me.name, &memory, &held);
        self.write(next.clone());
        self.machines[at].fill(&next, true);
    }
}
