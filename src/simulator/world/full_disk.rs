//! A peer whose disk rejects writes, as in `peer/driver/disk_pressure.rs`: its node is suspended at the first record
//! that cannot be written, and continues there when there is space. Meanwhile it serves its blobs, and answers from its
//! present state.

use std::collections::VecDeque;

use crate::protocol::{Action, Event};
use crate::simulator::Failure;
use crate::simulator::world::{Due, World};

impl World {
    /// Blobs that others could do without are released first.
    pub(super) fn stall(&mut self, index: usize, actions: VecDeque<Action>) {
        let now_ms = self.now_ms;
        self.trace.fault(now_ms, index, format_args!("has no room on its disk"));
        let peer = &mut self.peers[index];
        peer.stalled = actions;
        for average in peer.node.spare_averages() {
            peer.disk.remove(average);
        }
    }

    /// No event reaches the node; requests are answered all the same.
    pub(super) fn defer_until_space(&mut self, index: usize, due_ms: u64, due: Due) -> Result<(), Failure> {
        if let Due::Event(event) = &due
            && let Event::Asked { token, request, .. } = &**event
        {
            let response = self.peers[index].node.answer(request);
            self.reply(index, *token, response);
            return Ok(());
        }
        let until_ms = self.peers[index].full_until_ms.max(self.now_ms + 1);
        self.postpone(index, (due_ms, until_ms), due);
        Ok(())
    }

    /// The journal is rewritten, and the waiting actions are carried out.
    pub(super) fn resume_with_space(&mut self, index: usize) -> Result<(), Failure> {
        let now_ms = self.now_ms;
        let peer = &mut self.peers[index];
        if !peer.up || !peer.is_stalled() || now_ms < peer.full_until_ms {
            return Ok(());
        }
        peer.disk.journal = peer.node.records();
        let actions = std::mem::take(&mut peer.stalled);
        self.carry_out_all(index, actions)?;
        self.set_tick(index);
        Ok(())
    }
}
