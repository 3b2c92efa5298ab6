//! The native engine.
use crate::play::*;
pub(crate) fn play(_: Config, _: Vec<NodeSpec>, _: Director, _: Observer) -> Result<Played, EngineError> {
    todo!()
}
