//! Certificates and proxies that OpenSSL, VOMS and the Grid Community Toolkit make, and their verdicts beside ours.

#![allow(clippy::unwrap_used, clippy::panic)] // a test may fail this way

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use grid::{
    GridError, GridUser, PemError, Problem, Trust, UserCredential, VomsProblem, certificates_from_pem, verify_user,
};
use tempfile::TempDir;
use tls::load_grid_trust;
use types::Timestamp;

fn now() -> Timestamp {
    std::time::SystemTime::now().into()
}

/// Keys on P-256 are made quickly. The tools for proxies know RSA alone.
const EC: &str = "-newkey ec -pkeyopt ec_paramgen_curve:P-256";
const RSA: &str = "-newkey rsa:2048";

/// A folder with an authority, `ca`, in the directory `authorities`, and the kind of its keys.
struct Site(TempDir, &'static str);

impl Site {
    fn new(keys: &'static str) -> Self {
        let site = Self(TempDir::new().unwrap(), keys);
        fs::create_dir(site.path("authorities")).unwrap();
        fs::create_dir_all(site.path("vomsdir/wlcg")).unwrap();
        site.make(
            "ca",
            "/DC=org/O=Test/CN=Test CA",
            "ca",
            "basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign,cRLSign",
        );
        site.trust_in("ca");
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    /// Runs a program in the folder.
    fn try_run(&self, line: &str) -> Output {
        let mut words = line.split(' ').map(|word| word.replace('~', " "));
        let program = words.next().unwrap();
        let output = Command::new(&program).args(words).current_dir(self.0.path()).output();
        output.unwrap_or_else(|error| panic!("{program}: {error}; scripts/setup.sh installs it"))
    }

    fn run(&self, line: &str) -> String {
        let output = self.try_run(line);
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        assert!(output.status.success(), "{line}: {text}");
        text
    }

    /// Makes a key and a certificate `name`, signed by `issuer`. Blanks in the subject are fine.
    fn make(&self, name: &str, subject: &str, issuer: &str, extensions: &str) {
        self.make_with(name, subject, issuer, extensions, self.1, "-sha256 -days 10");
    }

    fn make_with(&self, name: &str, subject: &str, issuer: &str, extensions: &str, key: &str, how: &str) {
        self.write(&format!("{name}.ext"), extensions);
        let subject = subject.replace(' ', "~");
        self.run(&format!("openssl req {key} -nodes -subj {subject} -keyout {name}.key -out {name}.csr"));
        let signer = match name == issuer {
            true => format!("-signkey {name}.key"),
            false => format!("-CA {issuer}.pem -CAkey {issuer}.key -CAcreateserial"),
        };
        self.run(&format!("openssl x509 -req -in {name}.csr {signer} {how} -extfile {name}.ext -out {name}.pem"));
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(self.path(&format!("{name}.key")), fs::Permissions::from_mode(0o600)).unwrap();
    }

    fn user(&self, name: &str, subject: &str) {
        self.make(name, subject, "ca", "basicConstraints=critical,CA:FALSE\nkeyUsage=critical,digitalSignature");
    }

    /// Makes a proxy `name` of `issuer`.
    fn proxy(&self, name: &str, subject: &str, issuer: &str, info: &str) {
        let extensions = format!("keyUsage=critical,digitalSignature\nproxyCertInfo=critical,{info}");
        self.make(name, subject, issuer, &extensions);
    }

    fn trust_in(&self, name: &str) {
        fs::copy(self.path(&format!("{name}.pem")), self.path(&format!("authorities/{name}.pem"))).unwrap();
        self.run("openssl rehash authorities");
    }

    fn trust(&self) -> Trust {
        load_grid_trust(&self.path("authorities"), Some(&self.path("vomsdir")), Vec::new()).unwrap()
    }

    fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(&format!("{name}.pem"))).unwrap()
    }

    fn chain(&self, names: &[&str]) -> Vec<Vec<u8>> {
        certificates_from_pem(&names.iter().map(|name| self.read(name)).collect::<Vec<_>>().concat()).unwrap()
    }

    fn verify(&self, names: &[&str]) -> Result<GridUser, GridError> {
        verify_user(&self.chain(names), &self.trust(), now())
    }

    fn problem(&self, names: &[&str]) -> Problem {
        match self.verify(names) {
            Err(GridError::Certificate { why, .. }) => why,
            other => panic!("another result: {other:?}"),
        }
    }

    /// Whether OpenSSL accepts the chain for a client. Security level 2 is that of Debian.
    fn openssl_accepts(&self, names: &[&str], more: &str) -> bool {
        let rest: Vec<u8> = names[1..].iter().flat_map(|name| self.read(name)).collect();
        fs::write(self.path("rest.pem"), &rest).unwrap();
        let rest = if rest.is_empty() { "" } else { " -untrusted rest.pem" };
        let first = names[0];
        let line = format!(
            "openssl verify -allow_proxy_certs -purpose sslclient -auth_level 2 -CApath authorities{more}{rest} {first}.pem"
        );
        self.try_run(&line).status.success()
    }

    #[track_caller]
    fn same_verdict(&self, names: &[&str], accepted: bool) {
        assert_eq!(self.openssl_accepts(names, ""), accepted, "OpenSSL about {names:?}");
        let ours = self.verify(names);
        assert_eq!(ours.is_ok(), accepted, "{names:?}: {ours:?}");
    }
}

const ANA: &str = "/DC=org/O=Test/CN=Ana Lee";

#[test]
fn openssl_gives_the_same_verdicts() {
    let site = Site::new(EC);
    let ca = "basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign,cRLSign";
    site.user("ana", ANA);
    site.same_verdict(&["ana"], true);
    site.same_verdict(&["ana", "ca"], true);
    let key = |name: &str| fs::read(site.path(&format!("{name}.key"))).unwrap();
    let own = UserCredential::from_files(&site.read("ana"), &key("ana")).unwrap();
    assert_eq!(certificates_from_pem(own.chain_pem().as_bytes()).unwrap(), site.chain(&["ana"]));
    let other = UserCredential::from_files(&site.read("ana"), &key("ca")).unwrap_err();
    assert!(matches!(other, PemError::OtherKey(_)), "{other}");
    site.make("middle", "/O=Middle", "ca", &ca.replace("TRUE", "TRUE,pathlen:0"));
    site.make("bob", "/O=x/CN=Bob", "middle", "keyUsage=digitalSignature");
    site.same_verdict(&["bob", "middle"], true);
    site.same_verdict(&["bob"], false);
    site.make("low", "/O=Low", "middle", ca);
    site.make("cy", "/O=x/CN=Cy", "low", "keyUsage=digitalSignature");
    site.same_verdict(&["cy", "low", "middle"], false);
    site.make("stranger", "/O=Stranger", "stranger", ca);
    site.make("eve", "/O=x/CN=Eve", "stranger", "keyUsage=digitalSignature");
    site.same_verdict(&["eve", "stranger"], false);
    site.make("below-user", "/O=x/CN=Eve", "ana", "keyUsage=digitalSignature");
    site.same_verdict(&["below-user", "ana"], false);

    for (extensions, accepted) in [
        ("keyUsage=digitalSignature\nextendedKeyUsage=clientAuth", true),
        ("keyUsage=digitalSignature\nextendedKeyUsage=serverAuth", false),
        ("keyUsage=critical,keyEncipherment", false),
        ("1.2.3.4=critical,DER:0500", false),
        ("1.2.3.4=DER:0500", true),
    ] {
        site.make("x", "/O=x/CN=x", "ca", extensions);
        site.same_verdict(&["x"], accepted);
    }
    site.make_with("x", "/O=x/CN=x", "ca", "keyUsage=digitalSignature", "-newkey rsa:2048", "-sha1 -days 10");
    site.same_verdict(&["x"], false);
    site.make_with("x", "/O=x/CN=x", "ca", "keyUsage=digitalSignature", "-newkey rsa:1024", "-sha256 -days 10");
    site.same_verdict(&["x"], false);
    let rsa = Site::new(RSA);
    for hash in ["-sha384", "-sha512"] {
        rsa.make_with("x", "/O=x/CN=x", "ca", "", "-newkey rsa:3072", &format!("{hash} -days 10"));
        rsa.same_verdict(&["x"], true);
    }
    for curve in ["P-256", "P-384"] {
        let key = format!("-newkey ec -pkeyopt ec_paramgen_curve:{curve}");
        site.make_with("x", "/O=x/CN=x", "ca", "", &key, "-sha256 -days 10");
        site.same_verdict(&["x"], true);
    }

    site.make(
        "bound",
        "/O=Bound",
        "ca",
        &format!("{ca}\nnameConstraints=critical,permitted;dirName:dir\n[dir]\nO=x\n"),
    );
    site.make("inside", "/O=x/CN=inside", "bound", "");
    site.same_verdict(&["inside", "bound"], true);
    site.make("outside", "/O=y/CN=outside", "bound", "");
    site.same_verdict(&["outside", "bound"], false);
}

#[test]
fn openssl_gives_the_same_verdicts_about_proxies() {
    let site = Site::new(EC);
    site.user("ana", ANA);
    let inherit = "language:id-ppl-inheritAll";
    let (first, second, third) = (format!("{ANA}/CN=1"), format!("{ANA}/CN=1/CN=2"), format!("{ANA}/CN=1/CN=2/CN=3"));
    site.proxy("p", &first, "ana", inherit);
    site.same_verdict(&["p", "ana"], true);
    site.same_verdict(&["p"], false);
    site.proxy("pp", &second, "p", inherit);
    site.same_verdict(&["pp", "p", "ana"], true);
    site.same_verdict(&["pp", "ana"], false);
    site.proxy("one", &first, "ana", &format!("{inherit},pathlen:1"));
    site.proxy("two", &second, "one", inherit);
    site.same_verdict(&["two", "one", "ana"], true);
    site.proxy("three", &third, "two", inherit);
    site.same_verdict(&["three", "two", "one", "ana"], false);
    for subject in ["/DC=org/O=Test/CN=Bob/CN=1", ANA, &second, &format!("{ANA}/OU=1")] {
        site.proxy("x", subject, "ana", inherit);
        site.same_verdict(&["x", "ana"], false);
    }
    site.make("x", &first, "ana", &format!("basicConstraints=CA:TRUE\nproxyCertInfo=critical,{inherit}"));
    site.same_verdict(&["x", "ana"], false);
    site.make("x", &first, "ana", &format!("subjectAltName=DNS:a.org\nproxyCertInfo=critical,{inherit}"));
    site.same_verdict(&["x", "ana"], false);
    site.proxy("limited", &first, "ana", "language:1.3.6.1.4.1.3536.1.1.1.9");
    site.same_verdict(&["limited", "ana"], true);
    assert!(site.verify(&["limited", "ana"]).unwrap().limited);

    // OpenSSL leaves rights to its callers.
    site.proxy("independent", &first, "ana", "language:id-ppl-independent");
    assert!(site.openssl_accepts(&["independent", "ana"], ""));
    assert_eq!(site.problem(&["independent", "ana"]), Problem::ProxyIndependent);
    // It does not look whether the extension is critical.
    site.make("soft", &first, "ana", &format!("proxyCertInfo={inherit}"));
    assert!(site.openssl_accepts(&["soft", "ana"], ""));
    assert_eq!(site.problem(&["soft", "ana"]), Problem::ProxyNotCritical);
    // A legacy proxy has nothing but a name.
    site.make("legacy", &format!("{ANA}/CN=proxy"), "ana", "keyUsage=digitalSignature");
    site.same_verdict(&["legacy", "ana"], false);
}

#[test]
fn revoked_users_are_refused_by_both() {
    let site = Site::new(EC);
    site.user("ana", ANA);
    site.user("bob", "/DC=org/O=Test/CN=Bob");
    site.write("ca.cnf", "[ca]\ndefault_ca=d\n[d]\ndatabase=index\ncrlnumber=number\ndefault_md=sha256\ndefault_crl_days=9\nprivate_key=ca.key\ncertificate=ca.pem\n");
    site.write("index", "");
    site.write("number", "01\n");
    site.run("openssl ca -config ca.cnf -revoke bob.pem");
    site.run("openssl ca -config ca.cnf -gencrl -out authorities/ca.crl.pem");
    site.run("openssl rehash authorities");
    assert!(site.openssl_accepts(&["ana"], " -crl_check") && site.verify(&["ana"]).is_ok());
    assert!(!site.openssl_accepts(&["bob"], " -crl_check"));
    assert_eq!(site.problem(&["bob"]), Problem::Revoked);
}

#[test]
fn signing_policies_are_read_from_the_directory() {
    let site = Site::new(RSA);
    site.user("ana", ANA);
    let policy = |subjects: &str| {
        let text = format!(
            "access_id_CA X509 '/DC=org/O=Test/CN=Test CA'\npos_rights globus CA:sign\ncond_subjects globus '\"{subjects}\"'\n"
        );
        site.write("authorities/ca.signing_policy", &text);
    };
    policy("/DC=org/O=Test/*");
    site.verify(&["ana"]).unwrap();
    policy("/DC=org/O=Other/*");
    assert!(matches!(site.problem(&["ana"]), Problem::SigningPolicy(_)));
    // A policy that cannot be read is that of the authority with the same name of a file: here a hash.
    fs::remove_file(site.path("authorities/ca.signing_policy")).unwrap();
    let hash = site.run("openssl x509 -noout -hash -in ca.pem");
    site.write(&format!("authorities/{}.signing_policy", hash.trim()), "x\n");
    assert!(matches!(site.problem(&["ana"]), Problem::UnusableSigningPolicy(_)));
}

#[test]
fn proxies_of_globus_are_their_users() {
    let site = Site::new(RSA);
    site.user("ana", ANA);
    let with = |more: &str| {
        site.run(&format!("grid-proxy-init -q -cert ana.pem -key ana.key -certdir authorities -out proxy.pem{more}"));
        let credential = UserCredential::from_pem(&site.read("proxy")).unwrap();
        verify_user(credential.chain(), &site.trust(), now()).unwrap()
    };
    let user = with("");
    assert_eq!((user.subject.as_str(), user.limited), (ANA, false));
    assert!(with(" -limited").limited);
    // A proxy with another one's key.
    let other = [site.read("ana"), fs::read(site.path("ca.key")).unwrap()].concat();
    assert!(UserCredential::from_pem(&other).is_err());
}

/// The attributes that the library of VOMS accepts, or `None`.
fn voms_accepts(site: &Site) -> Option<Vec<String>> {
    if !site.path("judge").exists() {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/voms_judge.cc");
        site.run(&format!("g++ -o judge {} -lvomsapi -lcrypto", source.display()));
    }
    let mut command = Command::new(site.path("judge"));
    let command = command.arg(site.path("proxy.pem")).env("X509_CERT_DIR", site.path("authorities"));
    let output = command.env("X509_VOMS_DIR", site.path("vomsdir")).output().unwrap();
    let attributes = String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect();
    output.status.success().then_some(attributes)
}

fn fake(site: &Site, certificate: &str, more: &str) {
    site.run(&format!(
        "voms-proxy-fake -cert {certificate}.pem -key {certificate}.key -certdir authorities -hostcert voms.pem \
         -hostkey voms.key -voms wlcg -fqan /wlcg/Role=test -fqan /wlcg/us -uri voms.example.org:15000 -rfc -out \
         proxy.pem{more}"
    ));
}

#[test]
fn voms_gives_the_same_verdicts() {
    let site = Site::new(RSA);
    let directory = |path: &Path, text: &str| fs::write(path.join("vomsdir/wlcg/voms.example.org.lsc"), text).unwrap();
    let lsc = |text: &str| directory(site.0.path(), text);
    site.user("ana", ANA);
    site.user("voms", "/DC=org/O=Test/CN=voms.example.org");
    lsc("/DC=org/O=Test/CN=voms.example.org\n/DC=org/O=Test/CN=Test CA\n");
    fake(&site, "ana", "");
    let user = site.verify(&["proxy"]).unwrap();
    assert_eq!(user.subject.as_str(), ANA);
    let ours: Vec<_> = user.fqans.iter().map(ToString::to_string).collect();
    assert_eq!(ours, ["/wlcg/Role=test", "/wlcg/us"]);
    assert_eq!(voms_accepts(&site), Some(ours));

    let refused = || site.verify(&["proxy"]).unwrap().refused_attributes.remove(0).why;
    lsc("/DC=org/O=Test/CN=other.example.org\n/DC=org/O=Test/CN=Test CA\n");
    assert!(matches!(refused(), VomsProblem::OtherSigner { .. }));
    assert_eq!(voms_accepts(&site), None);
    lsc("/DC=org/O=Test/CN=voms.example.org\n/DC=org/O=Test/CN=Other CA\n");
    assert!(matches!(refused(), VomsProblem::OtherSigner { .. }));
    assert_eq!(voms_accepts(&site), None);
    fs::remove_file(site.path("vomsdir/wlcg/voms.example.org.lsc")).unwrap();
    assert!(matches!(refused(), VomsProblem::UnknownServer(_)));
    assert_eq!(voms_accepts(&site), None);

    // A stranger has signed, in the server's name.
    lsc("/DC=org/O=Test/CN=voms.example.org\n/DC=org/O=Test/CN=Test CA\n");
    site.make("stranger", "/DC=org/O=Test/CN=Test CA", "stranger", "basicConstraints=critical,CA:TRUE");
    site.make("voms", "/DC=org/O=Test/CN=voms.example.org", "stranger", "subjectKeyIdentifier=hash");
    fake(&site, "ana", "");
    assert!(matches!(refused(), VomsProblem::Signer(_)));
    assert_eq!(voms_accepts(&site), None);
}
