//! Base chains whose names other programs use, too: checks that the kernel sends packets to them.

use netops::OpError;
use netops::error::Result;
use netops::nft::{BaseInfo, Chain, ChainInfo, Change, Hook, Nft, Table, Transaction};

/// Finds a chain; `None` if no chain has its name. Any priority of a base chain is accepted.
/// Errors: a base chain is needed, and the chain with that name is a regular one, or has another type or hook: its rules would never be
/// reached. Or a regular one is needed and it is a base chain, to which the kernel lets no rule jump.
pub(crate) fn find(nft: &mut Nft, chain: &Chain) -> Result<Option<ChainInfo>> {
    let found = nft.find_chain(chain)?;
    expect(chain, found.as_ref()).map(|()| found)
}

/// Checks that the chain as it was found, if it was, is of the kind that is needed.
pub(crate) fn expect(chain: &Chain, found: Option<&ChainInfo>) -> Result<()> {
    let Some(ChainInfo { base, .. }) = found else { return Ok(()) };
    let what = match base {
        Some(base) if chain.base.is_some_and(|wanted| base.hangs_as(wanted)) => return Ok(()),
        Some(BaseInfo { kind, hook, .. }) => {
            let hook = Hook::of(*hook).map_or_else(|| format!("number {hook}"), |hook| hook.name().to_owned());
            format!("a {kind} chain on hook {hook}")
        }
        None if chain.base.is_none() => return Ok(()),
        None => "a regular chain".to_owned(),
    };
    let why = match chain.base {
        Some(wanted) => format!(
            "so the rules in it would do nothing; needed is a {} chain on hook {}",
            wanted.kind.name(),
            wanted.hook.name()
        ),
        None => "and no rule can jump to a chain that is on a hook".to_owned(),
    };
    let sentence = format!("it is {what}, {why}: delete or rename it");
    Err(OpError::state("use", format!("nft chain {} {}", chain.table, chain.name), sentence))
}

/// Whether a table exists and is dormant: the kernel keeps it but sends it no packets.
pub(crate) fn is_dormant(nft: &mut Nft, table: &Table) -> Result<bool> {
    Ok(nft.find_table(table)?.is_some_and(|table| table.is_dormant))
}

/// Checks that a table is not dormant, if it exists.
/// Errors: the table is dormant; the error says how to wake it.
pub(crate) fn expect_awake(nft: &mut Nft, table: &Table) -> Result<()> {
    if !is_dormant(nft, table)? {
        return Ok(());
    }
    let sentence = format!("it is dormant, so its rules do nothing: `nft add table {table}` wakes it");
    Err(OpError::state("use", format!("nft table {table}"), sentence))
}

/// Wakes one of our tables if it is dormant, as `nft add table` does.
pub(crate) fn wake(nft: &mut Nft, table: &Table) -> Result<()> {
    if is_dormant(nft, table)? {
        tracing::warn!("nft table {table} is dormant, so its rules do nothing: clearing the flag");
        nft.commit(&Transaction::new(vec![Change::WakeTable(table.clone())]))?;
    }
    Ok(())
}
