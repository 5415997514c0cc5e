//! Changing a ruleset that other processes change as well: look, change, and look again if it moved.

use netops::error::Result;
use netops::nft::{Chain, Change, Expr, Nft, Transaction};
use netops::{Errno, OpError};

/// How often somebody else may come first.
const TRIES: usize = 16;

/// Whether the object looked at has come or gone since.
pub(crate) fn is_overtaken(error: &OpError) -> bool {
    matches!(error.os_errno(), Some(Errno::ENOENT | Errno::EEXIST | Errno::EBUSY | Errno::ERESTART))
}

/// Looks and changes until nobody has come between the two.
pub(crate) fn retry<T>(mut look_and_change: impl FnMut() -> Result<T>) -> Result<T> {
    for _ in 1..TRIES {
        match look_and_change() {
            Err(error) if is_overtaken(&error) => {}
            done => return done,
        }
    }
    look_and_change()
}

/// Deletes what `idle` finds unused, if nobody has changed the ruleset meanwhile. When others keep
/// changing it, leaves the rest to the next sweep: it does no harm.
pub(crate) fn sweep(nft: &mut Nft, mut idle: impl FnMut(&mut Nft) -> Result<Vec<Change>>) -> Result<()> {
    for _ in 0..TRIES {
        let generation = nft.generation()?;
        let changes = idle(nft)?;
        match nft.commit(&Transaction::new(changes).if_still(generation)) {
            Err(error) if is_overtaken(&error) => {}
            done => return done,
        }
    }
    Ok(())
}

/// Compares a chain's rules with what they should be.
pub(crate) fn check_rules(nft: &mut Nft, chain: &Chain, wanted: &[Vec<Expr>]) -> Result<()> {
    let found = nft.list_rules(chain)?;
    if found.iter().map(|rule| &rule.exprs).eq(wanted) {
        return Ok(());
    }
    let object = format!("nft chain {} {}", chain.table, chain.name);
    let sentence = if found.is_empty() { "its rules were not found" } else { "its rules are not what they were" };
    Err(OpError::state("find", object, sentence))
}

#[cfg(test)]
mod tests {
    use netops::nft::{Family, Table};
    use nix::sched::{CloneFlags, unshare};

    use super::*;

    #[expect(clippy::disallowed_methods, reason = "a namespace of the test's own, on a thread that ends there")]
    fn in_netns(test: impl FnOnce() + Send + 'static) {
        let thread = std::thread::spawn(move || {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            test();
        });
        thread.join().unwrap();
    }

    #[test]
    fn only_being_overtaken_is_tried_again() {
        for (errno, expected) in [(Errno::ENOENT, 3), (Errno::EEXIST, 3), (Errno::EPERM, 1)] {
            let mut tries = 0;
            let outcome = retry(|| {
                tries += 1;
                if tries < 3 { Err(OpError::errno("create", "it", errno)) } else { Ok(()) }
            });
            assert_eq!((tries, outcome.is_ok()), (expected, expected == 3), "{errno}");
        }
    }

    #[test]
    fn a_sweep_deletes_nothing_that_came_into_use_meanwhile() {
        in_netns(|| {
            let table = Table::new(Family::Inet, "t");
            let mut nft = Nft::open("the host").unwrap();
            let mut other = Nft::open("the host").unwrap();
            nft.commit(&Transaction::new(vec![Change::EnsureTable(table.clone())])).unwrap();
            let mut looks = 0;
            let in_use = table.chain("in_use");
            sweep(&mut nft, |nft| {
                looks += 1;
                if nft.find_chain(&in_use)?.is_some() {
                    return Ok(Vec::new());
                }
                other.commit(&Transaction::new(vec![Change::EnsureChain(in_use.clone())]))?;
                Ok(vec![Change::DeleteTable(table.clone())])
            })
            .unwrap();
            assert_eq!(looks, 2);
            assert!(nft.find_chain(&in_use).unwrap().is_some());
        });
    }
}
