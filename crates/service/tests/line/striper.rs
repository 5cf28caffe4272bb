//! Puts striped files together for the tests: a client of the services opens each stripe unit where the manager sends it.

use std::sync::{Arc, OnceLock};

use disk_server::StripedGrant;
use node::StripedRights;
use service::{
    Change, Handle, Hints, Intent, Open, OpenFile, Principal, RequestNumber, Service, Session, StripedError,
    StripedFile, StripedOpen, Striper, UnitHint, WriteMode,
};
use types::striping::StripedOpenWrite;
use types::{ErrorCode, Stripe, Timestamp};

use super::client::Network;
use super::{Caller, client, hints, later, waited};

/// Opens striped files for writing in this network, once that is known.
pub struct LineStriper {
    pub network: Arc<OnceLock<Arc<Network>>>,
    /// Where requests about names go.
    pub home: &'static str,
}

struct Units {
    home: Arc<Service>,
    stripe: Stripe,
    writing: StripedOpenWrite,
    units: Vec<Unit>,
    len: std::sync::atomic::AtomicU64,
}

struct Unit {
    service: Arc<Service>,
    session: Arc<Session>,
    handle: Handle,
}

fn session_at(service: &Service) -> Arc<Session> {
    let caller = Caller::new(&Principal::admin(), ([127, 0, 0, 1], 1).into(), "root");
    service.session(caller.with_client(client("striper", 1)))
}

fn told(error: service::Error) -> StripedError {
    StripedError::new(error.code(), error.text())
}

impl Striper for LineStriper {
    fn open(&self, open: &StripedOpen) -> Result<Arc<dyn StripedFile>, StripedError> {
        let network = self.network.get().unwrap();
        let StripedGrant { stripe, rights: StripedRights::Write { writing, .. }, .. } = open.grant else {
            let text = "the tests do not read striped files".to_owned();
            return Err(StripedError::new(ErrorCode::Unsupported, text));
        };
        let home = Arc::clone(&network[self.home]);
        let unit = |number| {
            let unit = Some(UnitHint { number: Some(number), of: None, writing: Some(writing) });
            let (mut service, mut words) = (Arc::clone(&home), String::new());
            loop {
                let session = session_at(&service);
                service.enrol(&session);
                let hints = Hints { unit, ..hints(&words) };
                let request = Open { hints, ..Open::new(open.path.clone(), Intent::Write(WriteMode::Update)) };
                let (answer, receiver) = later();
                service.open(&session, request, answer);
                match waited(&receiver) {
                    Ok(opened) => return Ok(Unit { service, session, handle: opened.handle }),
                    Err(service::Error::Redirect(to)) => {
                        service.end_session(&session);
                        service = Arc::clone(&network[&to.address("root").unwrap().to_string()]);
                        let shows = to.shows().into_iter().map(|(key, value)| format!("{key}={value}"));
                        words = shows.collect::<Vec<_>>().join("&");
                    }
                    Err(error) => return Err(told(error)),
                }
            }
        };
        let units = (0..stripe.width()).map(unit).collect::<Result<_, _>>()?;
        Ok(Arc::new(Units { home: Arc::clone(&home), stripe, writing, units, len: 0.into() }))
    }
}

impl Unit {
    fn file(&self) -> Result<Arc<OpenFile>, StripedError> {
        self.service.file(&self.session, self.handle).map_err(told)
    }
}

impl StripedFile for Units {
    fn len(&self) -> u64 {
        self.len.load(std::sync::atomic::Ordering::Relaxed)
    }

    fn read(&self, _: u64, _: &mut [u8]) -> Result<usize, StripedError> {
        Ok(0)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), StripedError> {
        for run in self.stripe.runs(offset, data.len() as u64) {
            let from = usize::try_from(run.in_file - offset).unwrap();
            let data = &data[from..from + usize::try_from(run.len).unwrap()];
            self.units[usize::from(run.unit)].file()?.write(run.in_unit, data, None).map_err(told)?;
        }
        self.len.fetch_max(offset + data.len() as u64, std::sync::atomic::Ordering::Relaxed);
        Ok(())
    }

    fn truncate(&self, _: u64) -> Result<(), StripedError> {
        Ok(())
    }

    fn sync(&self) -> Result<(), StripedError> {
        Ok(())
    }

    fn complete(&self, mtime: Option<Timestamp>, request: Option<RequestNumber>) -> Result<(), StripedError> {
        for unit in &self.units {
            let (answer, receiver) = later();
            if let Some(work) = unit.service.close(&unit.session, unit.handle, None, answer) {
                work.run();
            }
            waited(&receiver).map_err(told)?;
        }
        let (answer, receiver) = later();
        let change = Change::CloseStriped { writing: self.writing, mtime, sums: None, unit_sums: None };
        self.home.change(&session_at(&self.home).caller(), change, request, answer);
        waited(&receiver).map_err(told)
    }
}

impl Drop for Units {
    fn drop(&mut self) {
        self.units.iter().for_each(|unit| unit.service.end_session(&unit.session));
    }
}
