//! Base chains under names that other programs use, too: does the kernel send packets there?

use netops::OpError;
use netops::error::Result;
use netops::nft::{BaseInfo, Chain, ChainInfo, Change, Hook, Nft, Table, Transaction};

/// Finds a base chain; `None` if there is no chain of its name. One at another priority does as well.
///
/// # Errors
/// What is there is a regular chain, or one of another type or on another hook: its rules would never be reached.
pub(crate) fn find(nft: &mut Nft, chain: &Chain) -> Result<Option<ChainInfo>> {
    let (found, wanted) = (nft.find_chain(chain)?, chain.base);
    let (Some(ChainInfo { base, .. }), Some(wanted)) = (&found, wanted) else { return Ok(found) };
    let what = match base {
        Some(base) if base.hangs_as(wanted) => return Ok(found),
        Some(BaseInfo { kind, hook }) => {
            let hook = Hook::of(*hook).map_or_else(|| format!("number {hook}"), |hook| hook.name().to_owned());
            format!("a {kind} chain on hook {hook}")
        }
        None => "a regular chain".to_owned(),
    };
    let sentence = format!(
        "it is {what}, so the rules in it would do nothing; needed is a {} chain on hook {}: delete or rename it",
        wanted.kind.name(),
        wanted.hook.name(),
    );
    Err(OpError::state("use", format!("nft chain {} {}", chain.table, chain.name), sentence))
}

/// Whether a table is there and dormant: the kernel keeps it and sends it no packets.
pub(crate) fn is_dormant(nft: &mut Nft, table: &Table) -> Result<bool> {
    Ok(nft.find_table(table)?.is_some_and(|table| table.is_dormant))
}

/// Finds out that a table, if it is there, is not dormant.
///
/// # Errors
/// It is, and how to wake it.
pub(crate) fn expect_awake(nft: &mut Nft, table: &Table) -> Result<()> {
    if !is_dormant(nft, table)? {
        return Ok(());
    }
    let sentence = format!("it is dormant, so its rules do nothing: `nft add table {table}` wakes it");
    Err(OpError::state("use", format!("nft table {table}"), sentence))
}

/// Wakes a table of ours if it is dormant, as `nft add table` does.
pub(crate) fn wake(nft: &mut Nft, table: &Table) -> Result<()> {
    if is_dormant(nft, table)? {
        tracing::warn!("nft table {table} is dormant, so its rules do nothing: clearing the flag");
        nft.commit(&Transaction::new(vec![Change::WakeTable(table.clone())]))?;
    }
    Ok(())
}
