//! Each kind of request: its effect and its errors.

use crate::world::client::{NEW, READ, REPLACE, UPDATE, arg};
use crate::world::{World, content};
use types::{Adler32, Crc32c};
use wire::request::{
    Access, Chmod, DirlistOptions, Fattr, FattrOp, Locate, LocateOptions, MkdirOptions, OpenOptions, QueryKind, Rmdir,
    Segment, Set, Stat, StatOptions, Statx, Target,
};
use wire::response::{ConfigReply, LocateReply, OpenReply, SpaceReply, StatFlags, VfsReply};
use wire::{ErrorNumber as E, Request};

#[test]
fn names_are_created_listed_renamed_and_removed() {
    let world = World::new();
    let mut me = world.connect();
    assert_eq!(me.mkdir("/a/b/c", MkdirOptions::NONE).number(), E::NOT_FOUND);
    me.mkdir("/a/b/c", MkdirOptions::MKPATH).ok();
    me.mkdir("/a/b/c", MkdirOptions::MKPATH).ok();
    assert_eq!(me.mkdir("/a/b/c", MkdirOptions::NONE).number(), E::EXISTS);
    me.put("/a/file", NEW, b"some bytes");
    assert_eq!(me.stat("/a/file").unwrap().size, 10);
    assert!(me.stat("/a").unwrap().flags.has(StatFlags::IS_DIR));
    me.mv("/a/file", "/a/b/moved").ok();
    assert_eq!(me.stat("/a/file").unwrap_err(), E::NOT_FOUND);
    assert_eq!(me.get("/a/b/moved"), b"some bytes");
    me.put("/other", NEW, b"other");
    me.mv("/other", "/a/b/moved").ok();
    assert_eq!(me.get("/a/b/moved"), b"other");
    assert_eq!(me.rm("/a").number(), E::IS_DIRECTORY);
    assert_eq!(me.rm("/nothing").number(), E::NOT_FOUND);
    let mut rmdir = |path| me.call(&Request::Rmdir(Rmdir { target: arg(path) }));
    assert_eq!(rmdir("/a/b").number(), E::EXISTS);
    rmdir("/a/b/c").ok();
    me.rm("/a/b/moved").ok();
    assert_eq!(me.list("/a/b", DirlistOptions::NONE), []);
    me.call(&Request::Chmod(Chmod { mode: Access(0o700), target: arg("/a") })).ok();
    assert_eq!(me.stat("/a").unwrap().extra.unwrap().mode, 0o700);
}

#[test]
fn attributes_are_read_by_any_handle_and_changed_by_a_writing_one() {
    let world = World::new();
    let mut me = world.connect();
    me.put("/file", NEW, b"some bytes");
    let fattr = |handle, op| Request::Fattr(Fattr { target: Target::Handle(handle), op });
    let set = |value: &[u8]| FattrOp::Set { only_new: false, pairs: vec![(b"run".to_vec(), value.to_vec())] };
    let reads = me.open("/file", READ);
    assert_eq!(me.call(&fattr(reads, set(b"1"))).number(), E::INVALID_REQUEST);
    assert_eq!(me.call(&fattr(reads, FattrOp::Del(vec![b"run".to_vec()]))).number(), E::INVALID_REQUEST);
    let writes = me.open("/file", UPDATE);
    me.mv("/file", "/moved").ok();
    me.put("/file", NEW, b"another one");
    assert_eq!(me.call(&fattr(writes, set(b"2"))).ok(), b"\0\x01\0\0run\0");
    assert_eq!(me.call(&fattr(reads, FattrOp::List { with_values: true })).ok(), b"run\0\0\0\0\x012");
    let by_name = Request::Fattr(Fattr { target: Target::Path(arg("/file")), op: FattrOp::List { with_values: true } });
    assert_eq!(me.call(&by_name).ok(), b"");
}

#[test]
fn small_and_large_files_are_read_back_by_all_requests() {
    let world = World::new();
    let mut me = world.connect();
    for len in [0, 1, 4095, 4096, 65_536, 65_537, 300_000, 5 << 20] {
        let data = content(len as u64, len);
        let path = format!("/f{len}");
        let handle = me.open(&path, NEW);
        // Out of order, unaligned, by both kinds of write.
        let cut = len / 3;
        me.write(handle, cut as u64, &data[cut..]).ok();
        me.pgwrite(handle, 0, &data[..cut]);
        assert_eq!(me.stat_handle(handle).size, len as u64);
        assert_eq!(me.read(handle, 0, 100).ok(), &data[..len.min(100)], "a writer reads what it wrote");
        me.close(handle).ok();
        assert_eq!(me.checksum(&path).unwrap(), format!("adler32 {:08x}", Adler32::of(&data).0));
        assert_eq!(
            me.checksum(&format!("{path}?cks.type=crc32c")).unwrap(),
            format!("crc32c {:08x}", Crc32c::of(&data).0)
        );
        let handle = me.open(&path, READ);
        let whole = u32::try_from(len).unwrap() + 1000;
        assert!(me.read(handle, 0, whole).ok() == data);
        assert!(me.pgread(handle, 0, whole).ok() == data);
        let from = (len / 2 + 3).min(len);
        assert!(me.read(handle, from as u64, whole).ok() == data[from..]);
        assert!(me.pgread(handle, from as u64, whole).ok() == data[from..]);
        assert_eq!(me.read(handle, len as u64 + 5, 10).ok(), b"");
        assert_eq!(me.pgread(handle, len as u64 + 5, 10).ok(), b"");
        me.close(handle).ok();
        assert_eq!(me.close(handle).number(), E::FILE_NOT_OPEN);
    }
}

#[test]
fn readv_answers_each_segment_whole_or_not_at_all() {
    let world = World::new();
    let mut me = world.connect();
    let data = content(1, 6 << 20);
    me.put("/a", NEW, &data);
    me.put("/b", NEW, b"second file");
    let (a, b) = (me.open("/a", READ), me.open("/b", READ));
    let segment = |handle, offset, len| Segment { handle, offset, len };
    let wanted = [
        segment(a, 5, 100),
        segment(b, 7, 4),
        segment(a, 0, 2_097_136),
        segment(a, 3 << 20, 2 << 19),
        segment(a, 9, 0),
    ];
    let parts = me.readv(&wanted).unwrap();
    for (part, segment) in parts.iter().zip(&wanted) {
        let source: &[u8] = if segment.handle == a { &data } else { b"second file" };
        let start = usize::try_from(segment.offset).unwrap();
        assert!(part == &source[start..start + segment.len as usize]);
    }
    assert_eq!(me.readv(&[segment(a, 0, 10), segment(b, 8, 4)]).unwrap_err(), E::FS_ERROR);
    assert_eq!(me.readv(&[segment(a, 0, 2_097_137)]).unwrap_err(), E::NO_MEMORY);
    assert_eq!(me.read(b, 0, 6).ok(), b"second", "the connection goes on");
}

#[test]
fn long_listings_are_complete() {
    let world = World::new();
    let mut me = world.connect();
    me.mkdir("/many", MkdirOptions::NONE).ok();
    let names: Vec<String> = (0..5000).map(|n| format!("entry-{n:05}-{}", "x".repeat(40))).collect();
    for name in &names {
        let request = Request::Mkdir(wire::request::Mkdir {
            options: MkdirOptions::NONE,
            mode: Access(0o755),
            target: arg(&format!("/many/{name}")),
        });
        me.send(&request, &[]);
    }
    for _ in &names {
        me.answer().1.ok();
    }
    let listed = me.list("/many", DirlistOptions::NONE);
    assert_eq!(listed.iter().map(|e| String::from_utf8(e.name.clone()).unwrap()).collect::<Vec<_>>(), names);
    let with_stat = me.list("/many", DirlistOptions::DSTAT);
    assert_eq!(with_stat.len(), names.len());
    assert!(with_stat.iter().all(|e| e.stat.as_ref().unwrap().flags.has(StatFlags::IS_DIR)));
    assert_eq!(me.list("/many/entry-00000-xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", DirlistOptions::DSTAT), []);
    me.put("/many/file", NEW, b"123");
    let file = me.list("/many", DirlistOptions::DCKSM).into_iter().find(|e| e.name == b"file").unwrap();
    assert_eq!(file.stat.unwrap().size, 3);
    assert_eq!(file.checksum.unwrap(), format!("adler32:{:08x}", Adler32::of(b"123").0).into_bytes());
}

#[test]
fn opens_do_what_their_options_say() {
    let world = World::new();
    let mut me = world.connect();
    assert_eq!(me.try_open("/f", READ).number(), E::NOT_FOUND);
    assert_eq!(me.try_open("/f", UPDATE).number(), E::NOT_FOUND);
    assert_eq!(me.try_open("/d/e/f", NEW).number(), E::NOT_FOUND);
    let handle = me.open("/d/e/f", OpenOptions(NEW.0 | OpenOptions::MKPATH.0));
    me.close(handle).ok();
    assert_eq!(me.try_open("/d/e/f", NEW).number(), E::EXISTS);
    assert_eq!(me.try_open("/d/e", READ).number(), E::IS_DIRECTORY);
    assert_eq!(me.try_open("/d/e", REPLACE).number(), E::IS_DIRECTORY);
    let reply = me.try_open("/d/e/f", OpenOptions(READ.0 | OpenOptions::RETSTAT.0)).ok();
    let reply = OpenReply::decode(&reply).unwrap();
    assert_eq!(reply.stat.unwrap().size, 0);
    assert_eq!(me.write(reply.handle, 0, b"x").number(), E::NOT_AUTHORIZED);
    // An update in place.
    me.put("/u", NEW, b"0123456789");
    let handle = me.open("/u", UPDATE);
    me.write(handle, 3, b"abc").ok();
    me.write(handle, 10, b"more").ok();
    me.close(handle).ok();
    assert_eq!(me.get("/u"), b"012abc6789more");
    assert_eq!(me.checksum("/u").unwrap(), format!("adler32 {:08x}", Adler32::of(b"012abc6789more").0));
    // Truncation by path and by handle.
    me.truncate(Target::Path(arg("/u")), 5).ok();
    assert_eq!(me.get("/u"), b"012ab");
    me.truncate(Target::Path(arg("/u")), 5).ok();
    let handle = me.open("/u", UPDATE);
    me.truncate(Target::Handle(handle), 7).ok();
    me.sync(handle).ok();
    me.close(handle).ok();
    assert_eq!(me.get("/u"), b"012ab\0\0");
    assert_eq!(me.truncate(Target::Path(arg("/none")), 7).number(), E::NOT_FOUND);
}

#[test]
fn queries_are_answered() {
    let world = World::new();
    let mut me = world.connect();
    me.put("/f", NEW, b"abc");
    let config = ConfigReply::decode(&me.query(QueryKind::Config, "readv_iov_max chksum nonsense").ok()).unwrap();
    assert_eq!(config.values, [b"1024".to_vec(), b"0:adler32,1:crc32c".to_vec(), b"nonsense".to_vec()]);
    let space = SpaceReply::decode(&me.query(QueryKind::Space, "/").ok()).unwrap();
    assert!(space.total > 0 && space.free <= space.total);
    let stats = String::from_utf8(me.query(QueryKind::Stats, "a").ok()).unwrap();
    assert!(stats.starts_with("<statistics") && stats.contains("pgm=\"weir\""));
    let vfs = me.call(&Request::Stat(Stat { options: StatOptions::VFS, target: Target::Path(arg("/")) })).ok();
    assert_eq!(VfsReply::decode(&vfs).unwrap().write_nodes, 1);
    assert_eq!(me.checksum("/").unwrap_err(), E::IS_DIRECTORY);
    assert_eq!(me.checksum("/f?cks.type=md5").unwrap_err(), E::UNSUPPORTED);
    assert_eq!(me.query(QueryKind::Opaque, "x").number(), E::UNSUPPORTED);
    let flags = me.call(&Request::Statx(Statx { options: StatOptions::NONE, lines: b"/f\n/".to_vec() })).ok();
    assert_eq!(flags.len(), 2);
    assert_eq!(u32::from(flags[1]) & StatFlags::IS_DIR.0, StatFlags::IS_DIR.0);
    let mut locate = |path| me.call(&Request::Locate(Locate { options: LocateOptions::NONE, target: arg(path) }));
    let place = LocateReply::decode(&locate("/f").ok()).unwrap().locations.remove(0);
    let port = format!(":{}", world.server().address().port());
    assert!(place.writable && String::from_utf8(place.address).unwrap().ends_with(&port));
    locate("*").ok();
    assert_eq!(locate("/none").number(), E::NOT_FOUND);
    me.call(&Request::Set(Set { modifier: 0, args: b"appid test".to_vec() })).ok();
    me.call(&Request::Ping).ok();
}

#[test]
fn many_requests_at_once_are_all_answered() {
    let world = World::new();
    let mut me = world.connect();
    let mut expected = std::collections::HashMap::new();
    for n in 0..400 {
        let path = format!("/p{n}");
        let open = wire::request::Open::plain(Access(0o644), NEW, arg(&path));
        expected.insert(me.send(&Request::Open(open), &[]), n);
    }
    let mut handles = Vec::new();
    for _ in 0..400 {
        let (stream, answer) = me.answer();
        handles.push((expected.remove(&stream).unwrap(), OpenReply::decode(&answer.ok()).unwrap().handle));
    }
    for (n, handle) in &handles {
        let data = content(*n, 4096);
        me.send(&Request::Write(wire::request::Write { handle: *handle, offset: 0, path_id: 0, len: 4096 }), &data);
        me.send(&Request::Close(wire::request::Close { handle: *handle }), &[]);
    }
    for _ in 0..800 {
        me.answer().1.ok();
    }
    for (n, _) in &handles {
        assert!(me.get(&format!("/p{n}")) == content(*n, 4096));
    }
}

#[test]
fn rm_removes_empty_directories_only() {
    let world = World::new();
    let mut me = world.connect();
    me.mkdir("/d/e", MkdirOptions::MKPATH).ok();
    assert_eq!(me.rm("/d").number(), E::IS_DIRECTORY);
    me.rm("/d/e").ok();
    me.rm("/d").ok();
    assert_eq!(me.stat("/d").unwrap_err(), E::NOT_FOUND);
    assert!(me.rm("/").number() != E::NOT_FOUND);
}

#[test]
fn a_lost_checksum_is_computed_once_and_kept() {
    let world = World::new();
    let data = content(5, 3 << 20);
    let mut me = world.connect();
    me.put("/f", NEW, &data);
    let before = me.checksum("/f").unwrap();
    // The client of an update disconnects: its data stays, without checksums.
    let handle = me.open("/f", UPDATE);
    me.write(handle, 0, &data[..5000]).ok();
    me.cut();
    let mut other = world.connect_as("other", 1);
    world.until("the update has ended", || other.checksum("/f").is_ok());
    // Many requests for checksums do not delay a close.
    let mut crowd: Vec<_> = (0..3).map(|n| world.connect_as("crowd", n)).collect();
    let query =
        wire::request::Query { kind: QueryKind::Checksum, handle: wire::FileHandle::default(), args: b"/f".to_vec() };
    for asker in &mut crowd {
        for _ in 0..200 {
            asker.send(&Request::Query(query.clone()), &[]);
        }
    }
    let began = std::time::Instant::now();
    other.put("/g", NEW, &content(6, 100_000));
    assert!(began.elapsed() < std::time::Duration::from_secs(2), "{:?}", began.elapsed());
    for asker in &mut crowd {
        assert_eq!(asker.answer().1.ok().trim_ascii_end().len(), before.len() + 1);
    }
    assert_eq!(other.checksum("/f").unwrap(), before);
    let listed = other.list("/", DirlistOptions::DCKSM);
    let sum = listed.iter().find(|entry| entry.name == b"f").unwrap().checksum.clone().unwrap();
    assert!(sum.starts_with(b"adler32:") && sum != b"adler32:none", "it is not kept: {}", sum.escape_ascii());
}

#[test]
fn the_attributes_by_query_have_the_durable_length_even_for_the_writer() {
    let world = World::with(|config| config.service.times.keeper = std::time::Duration::from_secs(3600));
    let mut me = world.connect();
    let handle = me.open("/file", NEW);
    me.write(handle, 0, b"some bytes").ok();
    let used = |me: &mut crate::world::client::Client| {
        let text = String::from_utf8(me.query(QueryKind::Xattr, "/file").ok()).unwrap();
        text.split('&').find_map(|word| word.strip_prefix("oss.used=").map(str::to_owned)).unwrap()
    };
    assert_eq!(me.stat("/file").unwrap().size, 10, "the writer sees what it wrote");
    assert_eq!(used(&mut me), "0");
    me.sync(handle).ok();
    assert_eq!(used(&mut me), "10");
    me.close(handle).ok();
}
