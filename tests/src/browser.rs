//! A headless Chromium that a test drives by the DevTools protocol, over its two pipes: no port, no WebSocket.
//!
//! `scripts/test-packages` installs it. Whatever a page logs, throws or asks for is kept, so that a test can say that there
//! was nothing of it.

use std::cell::{Cell, RefCell};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::wait;

/// A busy machine starts a browser in tens of seconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a browser that is driven is not to do by itself.
const FLAGS: [&str; 12] = [
    "--headless=new",
    // It runs as whoever runs the tests, and opens pages of a kp of the test only.
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--no-first-run",
    "--no-default-browser-check",
    "--remote-debugging-pipe",
];

/// The browser. Dropping it ends it.
#[derive(Debug)]
pub struct Browser {
    child: Child,
    to: RefCell<File>,
    from: Receiver<Value>,
    number: Cell<u64>,
    events: RefCell<Vec<Value>>,
    _profile: TempDir,
}

/// What a page is looked at with.
#[derive(Debug, Clone, Copy)]
pub struct Screen {
    /// In CSS pixels.
    pub width: u32,
    /// In CSS pixels.
    pub height: u32,
    /// `prefers-color-scheme: dark`.
    pub dark: bool,
}

impl Screen {
    /// Somebody's desk.
    pub const DESK: Self = Self {
        width: 1280,
        height: 900,
        dark: false,
    };
    /// Somebody's pocket.
    pub const PHONE: Self = Self {
        width: 375,
        height: 760,
        dark: false,
    };

    /// The same in the dark.
    pub fn dark(self) -> Self {
        Self { dark: true, ..self }
    }
}

/// A tab.
#[derive(Debug)]
pub struct Tab<'a> {
    browser: &'a Browser,
    session: String,
}

impl Browser {
    /// Starts it with an empty profile.
    pub fn start() -> Self {
        let profile = tempfile::Builder::new()
            .prefix("kp-browser-")
            .tempdir()
            .expect("a directory");
        let pipes = ["to", "from"].map(|name| profile.path().join(name));
        for pipe in &pipes {
            mkfifo(pipe, Mode::S_IRWXU).expect("making a pipe");
        }
        // The protocol is spoken on descriptors 3 and 4. The shell becomes the browser.
        let child = Command::new("sh")
            .args(["-c", "exec chromium \"$@\" 3<\"$0/to\" 4>\"$0/from\""])
            .arg(profile.path())
            .args(FLAGS)
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg("about:blank")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("starting chromium");
        let [to, from] = pipes;
        let (sender, messages) = channel();
        std::thread::spawn(move || {
            let pipe = BufReader::new(File::open(from).expect("opening a pipe"));
            for message in pipe.split(0).map_while(Result::ok) {
                let message = serde_json::from_slice(&message).expect("a message of DevTools");
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        // For reading, too, so that this does not wait for a browser that cannot be started.
        let to = OpenOptions::new().read(true).write(true).open(to);
        Self {
            child,
            to: RefCell::new(to.expect("opening a pipe")),
            from: messages,
            number: Cell::new(0),
            events: RefCell::default(),
            _profile: profile,
        }
    }

    /// Opens a page in a new tab.
    pub fn open(&self, url: &str, screen: Screen) -> Tab<'_> {
        let target = self.call("Target.createTarget", json!({"url": "about:blank"}), None);
        let target = json!({"targetId": target["targetId"], "flatten": true});
        let session = self.call("Target.attachToTarget", target, None);
        let session = session["sessionId"].as_str().expect("a session").to_owned();
        let tab = Tab {
            browser: self,
            session,
        };
        for domain in ["Page", "Runtime", "Log", "Network"] {
            tab.call(&format!("{domain}.enable"), json!({}));
        }
        tab.show_on(screen);
        tab.call("Page.navigate", json!({ "url": url }));
        tab
    }

    fn call(&self, method: &str, parameters: Value, session: Option<&str>) -> Value {
        let number = self.number.get() + 1;
        self.number.set(number);
        let mut message = json!({"id": number, "method": method, "params": parameters});
        if let Some(session) = session {
            message["sessionId"] = json!(session);
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.to
            .borrow_mut()
            .write_all(&bytes)
            .expect("writing to the browser");
        loop {
            let answer = self.hear(PATIENCE, method);
            if answer["id"] == json!(number) {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return answer["result"].clone();
            }
            self.events.borrow_mut().push(answer);
        }
    }

    fn hear(&self, limit: Duration, what: &str) -> Value {
        match self.from.recv_timeout(limit) {
            Ok(message) => message,
            Err(RecvTimeoutError::Timeout) => panic!("the browser does not answer to {what}"),
            Err(RecvTimeoutError::Disconnected) => {
                panic!("the browser has ended (is chromium installed?), asked for {what}")
            }
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self
            .to
            .borrow_mut()
            .write_all(b"{\"id\":0,\"method\":\"Browser.close\"}\0");
        let child = &mut self.child;
        let ended = || child.try_wait().is_ok_and(|status| status.is_some());
        if !wait::happens(Duration::from_secs(5), ended) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

impl Tab<'_> {
    fn call(&self, method: &str, parameters: Value) -> Value {
        self.browser.call(method, parameters, Some(&self.session))
    }

    /// Looks at the page with another screen.
    pub fn show_on(&self, screen: Screen) {
        let metrics = json!({
            "width": screen.width, "height": screen.height, "deviceScaleFactor": 1,
            "mobile": screen.width < 600,
        });
        self.call("Emulation.setDeviceMetricsOverride", metrics);
        let scheme = if screen.dark { "dark" } else { "light" };
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.call("Emulation.setEmulatedMedia", features);
    }

    /// The value of an expression in the page.
    pub fn value(&self, expression: &str) -> Value {
        let parameters = json!({
            "expression": expression, "returnByValue": true, "awaitPromise": true,
        });
        let result = self.call("Runtime.evaluate", parameters);
        let thrown = &result["exceptionDetails"];
        assert!(thrown.is_null(), "{expression}: {thrown}");
        result["result"]["value"].clone()
    }

    /// Waits until an expression is true. While the page is not there yet it may fail.
    pub fn until(&self, expression: &str) {
        self.until_within(PATIENCE, expression);
    }

    /// The same with a limit.
    pub fn until_within(&self, limit: Duration, expression: &str) {
        let truth = format!(
            "(() => {{ try {{ return Boolean({expression}); }} catch {{ return false; }} }})()"
        );
        if !wait::happens(limit, || self.value(&truth) == json!(true)) {
            let text = self.value("document.body?.innerText");
            let text = text.as_str().unwrap_or_default();
            panic!("waited {limit:?} in vain for {expression}; the page says\n{text}");
        }
    }

    /// What went wrong in the page: errors and warnings it logged, exceptions, policies it broke.
    pub fn complaints(&self) -> Vec<String> {
        let logged = |event: &Value| {
            let entry = &event["params"];
            match event["method"].as_str()? {
                "Runtime.exceptionThrown" => Some(entry["exceptionDetails"].to_string()),
                "Runtime.consoleAPICalled" if entry["type"] != "log" => Some(entry.to_string()),
                "Log.entryAdded" => Some(entry["entry"].to_string()),
                _ => None,
            }
        };
        self.events().iter().filter_map(logged).collect()
    }

    /// Everything it asked for.
    pub fn requests(&self) -> Vec<String> {
        let url = |event: &Value| {
            (event["method"] == "Network.requestWillBeSent").then(|| {
                event["params"]["request"]["url"]
                    .as_str()
                    .map(str::to_owned)
            })?
        };
        self.events().iter().filter_map(url).collect()
    }

    fn events(&self) -> Vec<Value> {
        // What has happened so far has been told once a later question is answered.
        self.value("0");
        let events = self.browser.events.borrow();
        let ours = |event: &&Value| event["sessionId"] == json!(self.session);
        events.iter().filter(ours).cloned().collect()
    }

    /// Keeps a picture of the whole page, for people.
    pub fn picture(&self, path: &Path) {
        let size = self.call("Page.getLayoutMetrics", json!({}))["cssContentSize"].clone();
        let parameters = json!({
            "format": "png", "captureBeyondViewport": true,
            "clip": {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1},
        });
        let picture = self.call("Page.captureScreenshot", parameters);
        let data = picture["data"].as_str().expect("a picture");
        std::fs::write(path, decoded(data)).expect("writing a picture");
    }
}

/// Base64.
fn decoded(text: &str) -> Vec<u8> {
    let digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bytes, mut bits, mut held) = (Vec::new(), 0u32, 0);
    for digit in text.chars().filter_map(|c| digits.find(c)) {
        bits = bits << 6 | digit as u32;
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held) as u8);
        }
    }
    bytes
}
