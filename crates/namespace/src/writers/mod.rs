//! Open writes, their recovery, and how they end; the kept uploads, and the sessions of clients.

pub(crate) mod abandon;
pub(crate) mod begin;
pub(crate) mod commit;
pub(crate) mod end_unchanged;
pub(crate) mod grace;
pub(crate) mod hold;
pub(crate) mod interrupt;
pub(crate) mod interrupted;
pub(crate) mod keep_digest;
pub(crate) mod keep_sums;
pub(crate) mod located;
pub(crate) mod open_new;
pub(crate) mod open_write;
pub(crate) mod record;
pub(crate) mod recover;
pub(crate) mod request;
pub(crate) mod reserving;
pub(crate) mod returning;
pub(crate) mod scan;
pub(crate) mod session;
pub(crate) mod session_record;
pub(crate) mod sharing;
pub(crate) mod striped;
pub(crate) mod truncate;
pub(crate) mod upload_record;
pub(crate) mod uploads;
