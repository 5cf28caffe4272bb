//! fattr: extended attributes.

use service::{AttributeChange, Attributed, EachAttribute};
use types::ErrorCode;
use wire::request::{Fattr, FattrOp, Target};
use wire::response::{FattrList, FattrReply, FattrResult};
use wire::{ErrorNumber, ResponseStatus, StreamId};

use crate::connection::{Connection, Stop};
use crate::from_wire::parse_path;
use crate::to_wire::RequestError;

/// A longer list of attributes is sent in several frames.
const FRAME_BYTES: usize = 1 << 20;

fn number(code: ErrorCode) -> u16 {
    number_of(ErrorNumber::from(code))
}

fn number_of(number: ErrorNumber) -> u16 {
    u16::try_from(number.0).unwrap_or(u16::MAX)
}

fn encode(results: Vec<FattrResult>, body: &mut Vec<u8>) -> Result<(), RequestError> {
    FattrReply { results }.encode(body).map_err(|error| RequestError::of_wire(&error))
}

impl Connection {
    /// kXR_fattr. As in the stock server, each attribute has its own result, even if the file does not exist.
    #[inline(never)] // see `dispatch`
    pub(crate) fn fattr(&mut self, stream: StreamId, r: Fattr) -> Result<Result<(), RequestError>, Stop> {
        if self.front.service.has_names() {
            return self.fattr_now(stream, r);
        }
        // A disk server waits for its manager.
        self.out.leave()?;
        let result = self.fattr_now(stream, r);
        self.out.back();
        result
    }

    fn fattr_now(&mut self, stream: StreamId, r: Fattr) -> Result<Result<(), RequestError>, Stop> {
        let changes = matches!(r.op, FattrOp::Set { .. } | FattrOp::Del(_));
        let of = match self.fattr_of(&r.target, changes) {
            Ok(of) => of,
            Err(request_error) => return Ok(self.fattr_of_nothing(stream, r.op, request_error)),
        };
        match r.op {
            FattrOp::Get(names) => Ok(self.fattr_get(stream, &of, names)),
            FattrOp::List { with_values } => self.fattr_list(stream, &of, with_values),
            FattrOp::Set { only_new, pairs } => {
                self.fattr_change(stream, &of, AttributeChange::Set { only_new, pairs })
            }
            FattrOp::Del(names) => self.fattr_change(stream, &of, AttributeChange::Remove(names)),
        }
    }

    /// The file of the request. If it does not exist, the whole request fails.
    fn fattr_of(&self, target: &Target, changes: bool) -> Result<Attributed, RequestError> {
        let service = &self.front.service;
        Ok(match target {
            Target::Path(target) => service.attributes_of(&self.session.open.caller(), parse_path(&target.path)?)?,
            Target::Handle(handle) => service.attributes_of_file(&*self.file(*handle)?, changes)?,
        })
    }

    /// Like the stock server, reports the error as the result of each named attribute.
    fn fattr_of_nothing(&self, stream: StreamId, op: FattrOp, why: RequestError) -> Result<(), RequestError> {
        let (names, gets) = match op {
            FattrOp::Get(names) => (names, true),
            FattrOp::Del(names) => (names, false),
            FattrOp::Set { pairs, .. } => (pairs.into_iter().map(|(name, _)| name).collect(), false),
            FattrOp::List { .. } => return Err(why),
        };
        if let RequestError::Redirect(_) = why {
            return Err(why);
        }
        let number = match why.number() {
            // The request failed before the file was looked up.
            ErrorNumber::FILE_NOT_OPEN
            | ErrorNumber::ARG_INVALID
            | ErrorNumber::INVALID_REQUEST
            | ErrorNumber::NOT_AUTHORIZED => return Err(why),
            number => number_of(number),
        };
        let result = |name| FattrResult { number, name, value: gets.then(Vec::new) };
        let mut body = Vec::new();
        encode(names.into_iter().map(result).collect(), &mut body)?;
        self.ok(stream, |out| out.extend_from_slice(&body))
    }

    fn fattr_get(&self, stream: StreamId, of: &Attributed, names: Vec<Vec<u8>>) -> Result<(), RequestError> {
        let found = self.front.service.get_attributes(&self.session.open.caller(), of, names)?;
        let result = |(name, value): (Vec<u8>, Result<Vec<u8>, ErrorCode>)| {
            let (number, value) = value.map_or_else(|code| (number(code), Vec::new()), |value| (0, value));
            FattrResult { number, name, value: Some(value) }
        };
        let mut body = Vec::new();
        encode(found.into_iter().map(result).collect(), &mut body)?;
        self.ok(stream, |out| out.extend_from_slice(&body))
    }

    fn fattr_list(
        &mut self,
        stream: StreamId,
        of: &Attributed,
        with_values: bool,
    ) -> Result<Result<(), RequestError>, Stop> {
        let listed = match self.front.service.list_attributes(&self.session.open.caller(), of) {
            Ok(listed) => listed,
            Err(error) => return Ok(Err(error.into())),
        };
        let (mut body, mut one) = (Vec::new(), FattrList::default());
        for (name, value) in listed {
            one.attributes = vec![(name, with_values.then_some(value))];
            one.encode(&mut body);
            if body.len() >= FRAME_BYTES {
                let part = std::mem::take(&mut body);
                self.send_frame(stream, ResponseStatus::OkSoFar, &part, None)?;
            }
        }
        Ok(self.ok(stream, |out| out.extend_from_slice(&body)))
    }

    fn fattr_change(
        &mut self,
        stream: StreamId,
        of: &Attributed,
        change: AttributeChange,
    ) -> Result<Result<(), RequestError>, Stop> {
        let reply = self.hand_on(stream)?.encoded(|done: EachAttribute<()>, body| {
            let result = |(name, result): (Vec<u8>, Result<(), ErrorCode>)| FattrResult {
                number: result.map_or_else(number, |()| 0),
                name,
                value: None,
            };
            encode(done.into_iter().map(result).collect(), body)
        });
        self.front.service.change_attributes(&self.session.open.caller(), of, change, None, reply);
        Ok(Ok(()))
    }
}
