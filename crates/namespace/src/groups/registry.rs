//! What the registries of a cluster's nodes, stores and tokens have in common.

use crate::codec::BadValue;
use crate::scan::collect;
use crate::tree::permission::permit_administrator;
use crate::{Context, NsError, Read, keys};

pub(crate) fn get<T>(
    read: &dyn Read,
    key: &[u8],
    decode: impl Fn(&[u8]) -> Result<T, BadValue>,
) -> Result<Option<T>, NsError> {
    read.get(key)?.map(|value| decode(&value).map_err(|bad| bad.at(key))).transpose()
}

pub(crate) fn all<T>(
    read: &dyn Read,
    letter: &[u8; 1],
    decode: impl Fn(u64, &[u8]) -> Result<T, BadValue>,
) -> Result<Vec<T>, NsError> {
    collect(read, letter, &keys::end_of(letter), usize::MAX, |key, value| {
        let number = keys::number_at(key, 1).filter(|_| key.len() == 9);
        let number = number.ok_or_else(|| BadValue::Damaged("the key has a wrong length").at(key))?;
        decode(number, value).map(Some).map_err(|bad| bad.at(key))
    })
}

pub(crate) fn administrator(ctx: &Context) -> Result<(), NsError> {
    permit_administrator(&ctx.actor, &|| "the cluster".into())
}

pub(crate) fn bytes_of(bytes: &[u8]) -> Result<[u8; 32], BadValue> {
    bytes.try_into().map_err(|_| BadValue::Damaged("a key or a hash has a wrong length"))
}

pub(crate) fn text(bytes: &[u8]) -> Result<String, BadValue> {
    String::from_utf8(bytes.to_vec()).map_err(|_| BadValue::Damaged("a name or an address is no text"))
}
