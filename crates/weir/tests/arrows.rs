//! House rules that the compiler does not check: which crate may use which, no async runtime in the synchronous crates, no `utils`, no
//! `unwrap` in library code. ARCHITECTURE.md has the same list of arrows, which a test compares.

#![allow(clippy::unwrap_used)] // a test may fail this way

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// What each crate may use of weir's own crates, besides `types`.
const ARROWS: &[(&str, &[&str])] = &[
    ("types", &[]),
    ("disk", &[]),
    ("journal", &["disk"]),
    ("kv", &["journal", "disk"]),
    ("postgres-server", &[]),
    ("database", &["kv"]),
    ("wire", &[]),
    ("namespace", &["kv"]),
    ("store", &["disk", "journal", "kv"]),
    ("audit", &["console"]),
    ("service", &["audit", "namespace", "store", "node", "manager", "disk-server", "identity"]),
    ("tls", &["grid"]),
    ("replays", &[]),
    ("sss", &["replays"]),
    ("krb5", &["replays"]),
    ("xrootd", &["wire", "service", "tls", "authentication"]),
    ("cluster", &[]),
    ("sim", &["disk", "journal", "kv", "database", "namespace", "store", "cluster", "node", "manager", "disk-server"]),
    ("identity", &[]),
    ("grid", &["identity"]),
    ("gsi", &["grid"]),
    ("authentication", &["identity", "sss", "krb5", "tls", "gsi", "grid"]),
    ("link", &[]),
    ("node", &["cluster", "link", "store"]),
    ("manager", &["cluster", "link", "namespace", "node", "store"]),
    ("disk-server", &["cluster", "link", "node", "store"]),
    ("client", &["wire", "sss", "tls", "gsi"]),
    ("bench", &["client"]),
    ("python", &["client", "wire"]),
    ("console", &[]),
    ("status-page", &["console"]),
    ("monitor", &["console"]),
    ("foundation", &["console", "disk", "journal", "kv", "database", "namespace", "store"]),
    ("transfer", &["console", "client", "wire", "disk"]),
    ("bench-run", &["console", "status-page", "bench", "client"]),
    ("maintenance", &["console", "foundation", "disk", "journal", "kv", "database", "namespace", "store"]),
    ("config", &["audit", "service", "foundation", "tls", "authentication", "identity", "link"]),
    ("control", &["audit", "authentication", "config", "foundation", "disk", "identity", "link", "manager"]),
    ("local", &["config", "control", "console", "status-page", "foundation", "cluster", "manager", "client", "wire"]),
    (
        "weir",
        &[
            "audit",
            "config",
            "control",
            "local",
            "disk",
            "journal",
            "kv",
            "database",
            "wire",
            "namespace",
            "store",
            "service",
            "xrootd",
            "tls",
            "authentication",
            "client",
            "bench",
            "console",
            "status-page",
            "monitor",
            "foundation",
            "maintenance",
            "transfer",
            "bench-run",
            "cluster",
            "link",
            "node",
            "manager",
            "disk-server",
        ],
    ),
];

/// What tests, benches and build scripts may use in addition, to build an environment to test in.
const ARROWS_OF_TESTS: &[(&str, &[&str])] = &[
    ("database", &["postgres-server"]),
    ("foundation", &["postgres-server"]),
    ("namespace", &["journal", "disk", "database", "postgres-server"]),
    ("service", &["journal", "kv", "disk", "cluster", "link"]),
    ("xrootd", &["journal", "kv", "disk", "namespace", "store", "gsi"]),
    ("store", &["disk", "journal", "kv"]),
    ("kv", &["journal", "disk"]),
    ("maintenance", &["postgres-server"]),
    ("manager", &["kv"]),
];

/// Async runtimes and their helpers. The library that speaks PostgreSQL's protocol needs one, so one crate may use them.
const RUNTIMES: &[&str] = &["tokio", "async-std", "smol", "futures", "mio"];
const MAY_USE_RUNTIMES: &str = "database";

fn crates_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn manifests() -> BTreeMap<String, toml::Table> {
    let mut manifests = BTreeMap::new();
    for entry in std::fs::read_dir(crates_dir()).unwrap() {
        let entry = entry.unwrap();
        let manifest = entry.path().join("Cargo.toml");
        if manifest.exists() {
            let table = std::fs::read_to_string(&manifest).unwrap().parse::<toml::Table>().unwrap();
            manifests.insert(entry.file_name().into_string().unwrap(), table);
        }
    }
    manifests
}

/// The names in each table of dependencies called `kind`, including those under `[target.*]` and optional ones.
fn dependencies(manifest: &toml::Table, kind: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut tables = vec![manifest];
    if let Some(targets) = manifest.get("target").and_then(toml::Value::as_table) {
        tables.extend(targets.values().filter_map(toml::Value::as_table));
    }
    for table in tables {
        let Some(list) = table.get(kind).and_then(toml::Value::as_table) else { continue };
        for (name, what) in list {
            // `alias = { package = "weir-disk" }` is an arrow to disk, whatever its alias.
            let package = what.get("package").and_then(toml::Value::as_str).unwrap_or(name);
            names.insert(package.strip_prefix("weir-").unwrap_or(package).to_owned());
        }
    }
    names
}

fn allowed(list: &[(&str, &[&str])], from: &str) -> BTreeSet<String> {
    list.iter().filter(|(name, _)| *name == from).flat_map(|(_, to)| to.iter().map(|to| (*to).to_owned())).collect()
}

/// The arrows between weir's own crates that are not allowed, as `from -> to (kind)`.
fn wrong_arrows(manifests: &BTreeMap<String, toml::Table>) -> Vec<String> {
    let mut wrong = Vec::new();
    for (from, manifest) in manifests {
        let mut may = allowed(ARROWS, from);
        may.insert("types".into());
        let mut may_in_tests = allowed(ARROWS_OF_TESTS, from);
        may_in_tests.extend(may.iter().cloned());
        for (kind, may) in
            [("dependencies", &may), ("dev-dependencies", &may_in_tests), ("build-dependencies", &may_in_tests)]
        {
            for to in dependencies(manifest, kind) {
                let itself = to == *from && kind == "dev-dependencies";
                if manifests.contains_key(&to) && !may.contains(&to) && !itself {
                    wrong.push(format!("{from} -> {to} ({kind})"));
                }
            }
        }
    }
    wrong
}

#[test]
fn only_allowed_arrows_exist() {
    let manifests = manifests();
    let known: BTreeSet<_> = ARROWS.iter().map(|(name, _)| (*name).to_owned()).collect();
    let found: BTreeSet<_> = manifests.keys().cloned().collect();
    assert_eq!(found, known, "the crates are those of ARCHITECTURE.md; a new one gets its arrows there and here");
    assert_eq!(wrong_arrows(&manifests), Vec::<String>::new(), "see ARCHITECTURE.md for the arrows that are allowed");
}

#[test]
fn a_wrong_arrow_is_noticed() {
    let mut manifests = manifests();
    let lines = [
        ("journal", "[dependencies]\nkv.workspace = true\n"),
        ("namespace", "[target.'cfg(unix)'.dependencies]\nbytes = { package = \"weir-store\", path = \"../store\" }\n"),
        ("wire", "[dev-dependencies]\nservice.workspace = true\n"),
    ];
    for (name, text) in lines {
        manifests.insert(name.into(), text.parse().unwrap());
    }
    assert_eq!(
        wrong_arrows(&manifests),
        ["journal -> kv (dependencies)", "namespace -> store (dependencies)", "wire -> service (dev-dependencies)"]
    );
}

/// The names in backquotes.
fn quoted(text: &str) -> BTreeSet<String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// ARCHITECTURE.md and this test must not drift apart. A row that describes what its crate uses in words is not compared.
#[test]
fn architecture_has_the_same_arrows() {
    let text = std::fs::read_to_string(crates_dir().parent().unwrap().join("ARCHITECTURE.md")).unwrap();
    let mut compared = 0;
    for (name, to) in ARROWS {
        let row = text.lines().find(|line| line.starts_with(&format!("| `{name}` |")));
        let row = row.unwrap_or_else(|| panic!("ARCHITECTURE.md has no row for `{name}`"));
        let uses = row.trim_end().trim_end_matches('|').rsplit('|').next().unwrap().trim();
        let in_words = uses.split('`').step_by(2).any(|between| !between.trim().is_empty());
        if !in_words {
            let to: BTreeSet<String> = to.iter().map(|to| (*to).to_owned()).collect();
            assert_eq!(quoted(uses), to, "ARCHITECTURE.md has other arrows for `{name}`");
            compared += 1;
        }
    }
    assert!(compared > 20, "{compared} rows were compared");
}

#[test]
fn no_async_runtime_in_synchronous_crates() {
    for (name, manifest) in manifests() {
        for kind in ["dependencies", "dev-dependencies", "build-dependencies"] {
            for dependency in dependencies(&manifest, kind) {
                let runtime = RUNTIMES.iter().any(|r| dependency == *r || dependency.starts_with(&format!("{r}-")));
                assert!(
                    !runtime || name == MAY_USE_RUNTIMES,
                    "{name} uses {dependency}: weir has no async runtime; ARCHITECTURE.md says why"
                );
            }
        }
    }
}

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(dir) else { return };
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            found.push(path);
        }
    }
}

fn library_sources() -> Vec<PathBuf> {
    let mut found = Vec::new();
    for name in manifests().keys() {
        sources(&crates_dir().join(name).join("src"), &mut found);
    }
    assert!(found.len() > 20, "the sources were not found");
    found
}

#[test]
fn no_utils() {
    for path in library_sources() {
        let stem = path.file_stem().unwrap().to_string_lossy().into_owned();
        let folder = path.parent().unwrap().file_name().unwrap().to_string_lossy().into_owned();
        for name in [stem, folder] {
            assert!(
                !["util", "utils", "helper", "helpers", "misc", "common"].contains(&name.as_str()),
                "{} says nothing of its subject",
                path.display()
            );
        }
    }
}

/// Lines of library code that call what panics on outside input. Leaves out test modules and comments.
fn unwraps(source: &str) -> Vec<usize> {
    let mut wrong = Vec::new();
    for (number, line) in source.lines().enumerate() {
        let line = line.trim_start();
        // Test modules stand at the end of a file.
        if line.starts_with("#[cfg(test)]") || line.starts_with("#[cfg(all(test") {
            break;
        }
        if !line.starts_with("//") && line.contains(".unwrap()") {
            wrong.push(number + 1);
        }
    }
    wrong
}

#[test]
fn no_unwrap_in_library_code() {
    for path in library_sources() {
        let in_tests = path.components().any(|part| part.as_os_str() == "tests")
            || path.file_stem().is_some_and(|stem| stem == "tests" || stem.to_string_lossy().ends_with("_tests"));
        if !in_tests {
            let source = std::fs::read_to_string(&path).unwrap();
            assert_eq!(unwraps(&source), Vec::<usize>::new(), "`unwrap` in {}", path.display());
        }
    }
    assert_eq!(unwraps("fn f() {\n    x.unwrap();\n}\n// y.unwrap()\n#[cfg(test)]\nmod tests { z.unwrap() }\n"), [2]);
}

/// The words of `words` that occur in the code of a file. Leaves out comments.
fn found_words<'a>(source: &str, words: &[&'a str]) -> Vec<&'a str> {
    let code: Vec<&str> = source.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    words.iter().filter(|word| code.iter().any(|line| line.contains(*word))).copied().collect()
}

/// Crates that speak a protocol to clients.
const FRONT_ENDS: &[&str] = &["xrootd"];

/// Front ends ask the service with plain data: the service knows no protocol and no connection.
#[test]
fn the_service_knows_no_protocol() {
    let words = ["ErrorNumber", "wire::", "TcpStream", "TcpListener", "UdpSocket", "UnixStream", "http::", "xrootd::"];
    let mut files = Vec::new();
    for folder in ["src", "tests"] {
        sources(&crates_dir().join("service").join(folder), &mut files);
    }
    assert!(files.len() > 20, "the sources were not found");
    for path in files {
        let source = std::fs::read_to_string(&path).unwrap();
        // The front end for tests may listen; that is its purpose.
        let words = if path.components().any(|part| part.as_os_str() == "tests") { &words[..2] } else { &words[..] };
        assert_eq!(found_words(&source, words), Vec::<&str>::new(), "{}", path.display());
    }
    assert_eq!(found_words("// a wire::Frame\nuse wire::ErrorNumber;\n", &words), ["ErrorNumber", "wire::"]);
}

/// Front ends share the service, and nothing else.
#[test]
fn front_ends_do_not_know_each_other() {
    let manifests = manifests();
    for one in FRONT_ENDS {
        let may = allowed(ARROWS, one);
        assert!(may.contains("service"), "{one} asks the service");
        for inside in ["namespace", "store", "node", "manager", "disk-server", "cluster", "kv", "journal", "disk"] {
            assert!(
                !dependencies(&manifests[*one], "dependencies").contains(inside),
                "{one} goes past the service to {inside}"
            );
        }
        for other in FRONT_ENDS.iter().filter(|other| *other != one) {
            assert!(!may.contains(*other), "{one} knows {other}");
        }
    }
}

/// Batches are a front end of their own: batches and single requests share only the frames.
#[test]
fn batches_and_single_requests_do_not_know_each_other() {
    let xrootd = crates_dir().join("xrootd/src");
    let batch = std::fs::read_to_string(xrootd.join("batch.rs")).unwrap();
    assert_eq!(found_words(&batch, &["crate::requests", "super::requests"]), Vec::<&str>::new());
    let mut files = Vec::new();
    sources(&xrootd.join("requests"), &mut files);
    for path in files {
        let source = std::fs::read_to_string(&path).unwrap();
        // The answer to a config query lists the batches that the server takes.
        let of_query = path.ends_with("query.rs");
        assert!(of_query || found_words(&source, &["batch::"]).is_empty(), "{}", path.display());
    }
}

/// Each crate inherits the workspace's lints; a crate without the line would escape all checks.
#[test]
fn lints_are_inherited() {
    for (name, manifest) in manifests() {
        let inherits = manifest.get("lints").and_then(|lints| lints.get("workspace")).and_then(toml::Value::as_bool);
        assert_eq!(inherits, Some(true), "crates/{name}/Cargo.toml needs `[lints] workspace = true`");
    }
}

/// The files of `tests` that neither `main.rs` declares as a module nor the manifest as a program. Cargo does not
/// compile them, so their tests would never run.
fn files_nobody_compiles(files: &[String], main: &str, programs: &[String]) -> Vec<String> {
    let declared = |name: &str| main.lines().any(|line| line == format!("mod {name};"));
    let is_program = |name: &str| programs.iter().any(|path| *path == format!("tests/{name}.rs"));
    files.iter().filter(|name| !declared(name) && !is_program(name)).cloned().collect()
}

/// Where a crate's integration tests are one program, each of their files belongs to it.
#[test]
fn each_test_file_is_compiled() {
    let mut seen = 0;
    for (name, manifest) in manifests() {
        let found_by_cargo = manifest["package"].get("autotests").and_then(toml::Value::as_bool).unwrap_or(true);
        let folder = crates_dir().join(&name).join("tests");
        if found_by_cargo || !folder.exists() {
            continue;
        }
        seen += 1;
        let entries =
            std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let files: Vec<String> = entries.filter_map(|file| Some(file.strip_suffix(".rs")?.to_owned())).collect();
        let tests = manifest["test"].as_array().unwrap();
        let programs: Vec<String> = tests.iter().map(|test| test["path"].as_str().unwrap().to_owned()).collect();
        let main = std::fs::read_to_string(folder.join("main.rs")).unwrap();
        let left = files_nobody_compiles(&files, &main, &programs);
        assert_eq!(left, Vec::<String>::new(), "declare them in crates/{name}/tests/main.rs");
    }
    assert!(seen > 5, "the crates were not found");
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let left = files_nobody_compiles(
        &names(&["main", "a", "b", "c"]),
        "mod a;\n// mod b;\n",
        &names(&["tests/main.rs", "tests/c.rs"]),
    );
    assert_eq!(left, ["b"]);
}

/// A library or a binary that Cargo does not compile as a test has no tests, since they would never run.
#[test]
fn what_is_not_tested_has_no_tests() {
    let mut seen = 0;
    for (name, manifest) in manifests() {
        let untested = |target: &toml::Value| target.get("test").and_then(toml::Value::as_bool) == Some(false);
        let src = crates_dir().join(&name).join("src");
        let mut files = Vec::new();
        if manifest.get("lib").is_some_and(untested) {
            sources(&src, &mut files);
        }
        for bin in manifest.get("bin").and_then(toml::Value::as_array).into_iter().flatten().filter(|bin| untested(bin))
        {
            files.push(crates_dir().join(&name).join(bin["path"].as_str().unwrap()));
        }
        seen += files.len();
        for path in files {
            let source = std::fs::read_to_string(&path).unwrap();
            assert_eq!(found_words(&source, &["#[test]", "proptest!"]), Vec::<&str>::new(), "{}", path.display());
        }
    }
    assert!(seen > 2, "the sources were not found");
}
