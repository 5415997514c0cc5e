//! What ADD of a chained plugin would do, for programs that show it. Changes nothing.

use cni_spec::CniError;
use interface::Preview;
use skel::AddRequest;

use crate::attached::Attached;
use crate::lazy_sides::LazySides;
use crate::plugin::{AddOrCheck, ChainedPlugin};

/// Previews what ADD would do.
///
/// # Errors
/// Errors that ADD would report before it changes anything.
pub fn preview<P: ChainedPlugin>(request: &AddRequest, keys: &P::Conf) -> Result<Preview, CniError> {
    let AddRequest { attachment, netns, conf, raw } = request;
    let attached = Attached::new(conf.get_prev_result()?, attachment, Some(netns));
    let sides = LazySides::new(netns);
    let call = AddOrCheck { attachment, netns, conf, attached: &attached, sides: &sides, raw };
    let mut preview = Preview { result: attached.result.clone(), ..Preview::default() };
    P::preview(&call, keys, &mut preview)?;
    Ok(preview)
}
