//! STATUS: whether an ADD could write its files, and whether each set has a free address.
//!
//! Runtimes ask every few seconds and for ever, so nothing is written and no lock is taken. A set without a free address is no
//! reason for the node to be called not ready by default: then Kubernetes would evict the pods that have the addresses.

use std::convert::Infallible;
use std::fs::File;
use std::time::Duration;

use cni_spec::{CniError, Code};
use netops::OpError;
use netops::boot::Boot;

use crate::address::Address;
use crate::conf::{Conf, Reclaim};
use crate::index::Index;
use crate::inventory::list_held;
use crate::next_address::next_free;
use crate::preview::first_not_in;
use crate::range::{RangeSet, Span};
use crate::store::private_files::PrivateFiles;
use crate::store::{last_reserved, released};
use crate::{add, store_error};

/// STATUS: whether ADD could write its files; with `reportExhausted`, whether each set has an address to give.
pub async fn status(conf: &Conf) -> Result<(), CniError> {
    let unavailable = |error: &OpError| CniError { code: Code::NOT_AVAILABLE, ..store_error(error) };
    let folder = &conf.place.folder;
    // ADD reads the file for its result.
    add::dns(conf).map_err(|error| CniError { code: Code::NOT_AVAILABLE, ..error })?;
    last_reserved::require_writable(folder, conf.sets.len()).map_err(|error| unavailable(&error))?;
    match full_set(conf).map_err(|error| unavailable(&error))? {
        None => Ok(()),
        Some(set) if conf.report_exhausted => {
            let text = format!("no IP addresses available in range set: {set}");
            Err(CniError::new(Code::NOT_AVAILABLE, text).detail(format!("All are reserved in {}.", folder.display())))
        }
        Some(set) => {
            tracing::warn!(%set, store = %folder.display(), "the next ADD fails: no IP address of a range set is free");
            Ok(())
        }
    }
}

/// The place of the first set that has no address to give now: all are held or cool down.
pub fn find_full(conf: &Conf) -> Result<Option<usize>, CniError> {
    let conf = Conf { report_exhausted: true, ..conf.clone() };
    let full = full_set(&conf).map_err(|error| store_error(&error))?;
    Ok(full.and_then(|full| conf.sets.iter().position(|set| set == full)))
}

/// A set that has no address to give. Where the index cannot tell, only a config that asks for it pays for reading the folder.
fn full_set(conf: &Conf) -> Result<Option<&RangeSet>, OpError> {
    let folder = &conf.place.folder;
    let Ok(dir) = File::open(folder) else { return Ok(None) };
    let private_files = PrivateFiles::about(&dir, &conf.place.private_files);
    let private_files =
        private_files.map_err(|error| OpError::io("open", format!("store {}", folder.display()), &error))?;
    let cooling = match conf.cool_down {
        Duration::ZERO => Vec::new(),
        _ if conf.yields => Vec::new(),
        cool_down => released::peek(&private_files, cool_down),
    };
    let waits = |address: Address| cooling.iter().any(|(released, _)| released.address == address);
    let boot = Boot::read().ok();
    let by_index = boot.as_ref().and_then(|boot| {
        Index::glance(&private_files, &dir, &boot.id, |index| first_full(conf, waits, |span| index.next_free(span)))
    });
    match by_index {
        Some(None) => Ok(None),
        Some(full) if conf.reclaim == Reclaim::Never => Ok(full),
        _ if !conf.report_exhausted => Ok(None),
        _ => {
            let unreadable = |error| OpError::io("read", format!("store {}", folder.display()), &error);
            let mut held = list_held(folder).map_err(unreadable)?;
            if conf.reclaim != Reclaim::Never {
                // ADD would release these.
                held.retain(|held| {
                    held.holder().is_none() || !boot.as_ref().is_some_and(|boot| boot.is_after(held.written))
                });
            }
            let held = held.into_iter().map(|held| held.address.into()).collect();
            let free = |span| Ok::<_, Infallible>(first_not_in(&held, span));
            let Ok(full) = first_full(conf, waits, free);
            Ok(full)
        }
    }
}

/// How many addresses of each set are free, counted up to `most`. Those that cool down are.
pub fn count_free(conf: &Conf, most: usize) -> Result<Vec<usize>, CniError> {
    ask(conf, |free| count(conf, most, free))
}

/// As [`count_free`], of any list of what is free; `None` where that cannot answer.
pub(crate) fn count(conf: &Conf, most: usize, free: Free<'_>) -> Option<Vec<usize>> {
    let mut of_set = |set: &RangeSet| {
        let mut count = 0;
        for range in set.ranges() {
            let mut rest = Some(range.span());
            while let Some(span) = rest.filter(|_| count < most)
                && let Some(found) = next_free(|span| free(span).ok_or(()), conf, span, |_| false).ok()?
            {
                count += 1;
                rest = found.next().filter(|next| *next <= span.last).map(|first| Span { first, ..span });
            }
        }
        Some(count)
    };
    conf.sets.iter().map(&mut of_set).collect()
}

/// The released addresses that cool down.
pub fn list_cooling(conf: &Conf) -> Result<Vec<Address>, CniError> {
    let folder = &conf.place.folder;
    let failed = |error| store_error(&OpError::io("open", format!("store {}", folder.display()), &error));
    if conf.cool_down.is_zero() {
        return Ok(Vec::new());
    }
    let dir = File::open(folder).map_err(failed)?;
    let private_files = PrivateFiles::about(&dir, &conf.place.private_files).map_err(failed)?;
    Ok(released::peek(&private_files, conf.cool_down).into_iter().map(|(released, _)| released.address).collect())
}

/// The question for the first free address of a span; `None`: the index cannot answer.
pub(crate) type Free<'a> = &'a mut dyn FnMut(Span) -> Option<Option<Address>>;

/// Asks the index; where it cannot answer, the folder.
fn ask<T>(conf: &Conf, mut question: impl FnMut(Free<'_>) -> Option<T>) -> Result<T, CniError> {
    let folder = &conf.place.folder;
    let failed = |verb, error| store_error(&OpError::io(verb, format!("store {}", folder.display()), &error));
    if let Ok(dir) = File::open(folder)
        && let Ok(boot) = Boot::read()
    {
        let private_files =
            PrivateFiles::about(&dir, &conf.place.private_files).map_err(|error| failed("open", error))?;
        let asked =
            Index::glance(&private_files, &dir, &boot.id, |index| Ok(question(&mut |span| index.next_free(span).ok())));
        if let Some(answer) = asked.flatten() {
            return Ok(answer);
        }
    }
    let held = list_held(folder).map_err(|error| failed("read", error))?;
    let held = held.into_iter().map(|held| held.address.into()).collect();
    let answer = question(&mut |span| Some(first_not_in(&held, span)));
    answer.ok_or_else(|| CniError::new(Code::INTERNAL, "the folder's list has no answer"))
}

/// The first set of whose ranges `free` finds no address that may be given.
fn first_full<E>(
    conf: &Conf,
    waits: impl Fn(Address) -> bool,
    mut free: impl FnMut(Span) -> Result<Option<Address>, E>,
) -> Result<Option<&RangeSet>, E> {
    for set in &conf.sets {
        let mut is_full = true;
        for range in set.ranges() {
            is_full = is_full && next_free(&mut free, conf, range.span(), &waits)?.is_none();
        }
        if is_full {
            return Ok(Some(set));
        }
    }
    Ok(None)
}
