//! Refuses a circuit at its destination's connection, before a stream is opened.

use std::collections::VecDeque;
use std::io;
use std::task::{Context, Poll};

use libp2p::swarm::handler::{ConnectionEvent, DialUpgradeError};
use libp2p::swarm::{ConnectionHandler, ConnectionHandlerEvent, StreamUpgradeError, SubstreamProtocol};

/// What a handler is told beside libp2p's own event.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// The event asks the destination of a circuit, or this circuit is refused.
    Circuit {
        refused: bool,
    },
    Other,
}

/// The handler of a connection to a destination: fails the streams of refused circuits instead of opening them.
pub(crate) struct Refusing<H: ConnectionHandler> {
    inner: H,
    /// Circuits whose stream the inner handler has not requested yet, and whether they are refused.
    asked: VecDeque<bool>,
    /// Streams that were requested and are not open yet; with its information one that is not to be opened. libp2p
    /// gives each outcome to the oldest, so a refusal waits for those before it.
    opening: VecDeque<Option<H::OutboundOpenInfo>>,
}

impl<H: ConnectionHandler> Refusing<H> {
    pub(super) fn new(inner: H) -> Self {
        Self { inner, asked: VecDeque::new(), opening: VecDeque::new() }
    }

    fn refuse(&mut self) {
        while let Some(Some(info)) = self.opening.pop_front_if(|next| next.is_some()) {
            let error = StreamUpgradeError::Io(io::Error::other("the destination has as many circuits as it may have"));
            self.inner.on_connection_event(ConnectionEvent::DialUpgradeError(DialUpgradeError { info, error }));
        }
    }
}

impl<H: ConnectionHandler> ConnectionHandler for Refusing<H> {
    type FromBehaviour = (H::FromBehaviour, Step);
    type ToBehaviour = H::ToBehaviour;
    type InboundProtocol = H::InboundProtocol;
    type OutboundProtocol = H::OutboundProtocol;
    type InboundOpenInfo = H::InboundOpenInfo;
    type OutboundOpenInfo = H::OutboundOpenInfo;

    fn listen_protocol(&self) -> SubstreamProtocol<Self::InboundProtocol, Self::InboundOpenInfo> {
        self.inner.listen_protocol()
    }

    fn connection_keep_alive(&self) -> bool {
        self.inner.connection_keep_alive()
    }

    fn on_behaviour_event(&mut self, (event, step): Self::FromBehaviour) {
        if let Step::Circuit { refused } = step {
            self.asked.push_back(refused);
        }
        self.inner.on_behaviour_event(event);
    }

    fn poll(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<ConnectionHandlerEvent<Self::OutboundProtocol, Self::OutboundOpenInfo, Self::ToBehaviour>> {
        loop {
            match self.inner.poll(context) {
                Poll::Ready(ConnectionHandlerEvent::OutboundSubstreamRequest { protocol }) => {
                    if self.asked.pop_front() != Some(true) {
                        self.opening.push_back(None);
                        return Poll::Ready(ConnectionHandlerEvent::OutboundSubstreamRequest { protocol });
                    }
                    self.opening.push_back(Some(protocol.into_upgrade().1));
                    self.refuse();
                }
                other => return other,
            }
        }
    }

    fn poll_close(&mut self, context: &mut Context<'_>) -> Poll<Option<Self::ToBehaviour>> {
        self.inner.poll_close(context)
    }

    fn on_connection_event(
        &mut self,
        event: ConnectionEvent<
            '_,
            Self::InboundProtocol,
            Self::OutboundProtocol,
            Self::InboundOpenInfo,
            Self::OutboundOpenInfo,
        >,
    ) {
        let opened =
            matches!(event, ConnectionEvent::FullyNegotiatedOutbound(_) | ConnectionEvent::DialUpgradeError(_));
        self.inner.on_connection_event(event);
        if opened {
            self.opening.pop_front();
            self.refuse();
        }
    }
}
