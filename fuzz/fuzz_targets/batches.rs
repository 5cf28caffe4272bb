//! What stands behind a batch's header, and an answer to one, of any bytes: taken apart without a gap or refused.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::batch;
use wire::request::Batch;

fuzz_target!(|bytes: &[u8]| {
    let Some(([entries, high, low], behind)) = bytes.split_first_chunk::<3>() else { return };
    let batch = Batch {
        entries: u32::from(*entries).max(1),
        list_len: u32::from(u16::from_be_bytes([*high, *low])),
        len: u32::try_from(behind.len()).unwrap(),
    };
    if let Ok(found) = batch::entries(&batch, behind) {
        assert_eq!(found.len(), batch.entries as usize);
        let mut list = batch::List::default();
        for entry in &found {
            list.push(entry.op, &behind[entry.path.clone()], entry.data.len())
                .expect("what was understood can be said");
        }
        assert_eq!(list.request(), batch);
    }
    if let Ok(answers) = batch::answers(behind, batch.entries as usize) {
        assert_eq!(answers.len(), batch.entries as usize);
    }
});
