//! STATUS: whether ADD would find a free address in each set, and could write its files.

use std::time::Duration;

use cni_spec::{CniError, Code};

use crate::add::next_free;
use crate::conf::{Conf, Reclaim};
use crate::fault::fault;
use crate::range::RangeSet;
use crate::store::{Store, probe_for, released};

pub(crate) async fn status(conf: &Conf) -> Result<(), CniError> {
    let unavailable = |error: CniError| CniError { code: Code::NOT_AVAILABLE, ..error };
    match Store::find(&conf.place).await.map_err(|error| unavailable(fault(&error)))? {
        // Before the first ADD there is no folder, and STATUS does not make one.
        None => probe_for(&conf.place.folder, conf.sets.len()).map_err(|error| unavailable(fault(&error))),
        Some(mut store) => {
            let outcome = could_serve(&mut store, conf);
            store.finish();
            outcome.map_err(unavailable)
        }
    }
}

fn could_serve(store: &mut Store, conf: &Conf) -> Result<(), CniError> {
    store.probe(conf.sets.len()).map_err(|error| fault(&error))?;
    for set in &conf.sets {
        if !has_free(store, conf, set)? && !has_reclaimable(store, conf)? {
            let text = format!("no IP addresses available in range set: {set}");
            return Err(CniError::new(Code::NO_ADDRESS, text)
                .detail(format!("All are reserved in {}.", conf.place.folder.display())));
        }
    }
    Ok(())
}

fn has_free(store: &mut Store, conf: &Conf, set: &RangeSet) -> Result<bool, CniError> {
    let cooling = match conf.cool_down {
        Duration::ZERO => Vec::new(),
        cool_down => released::read(store.notes(), cool_down),
    };
    for range in set.ranges() {
        let waiting = |address| cooling.iter().any(|(released, _)| released.address == address);
        if next_free(store, conf, range.span(), waiting)?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

fn has_reclaimable(store: &mut Store, conf: &Conf) -> Result<bool, CniError> {
    match conf.reclaim {
        Reclaim::Never => Ok(false),
        Reclaim::Exhausted | Reclaim::Always => {
            Ok(!store.list_earlier_boots(None).map_err(|error| fault(&error))?.is_empty())
        }
    }
}
