//! A listener that Envoy reads from a file of its own and takes anew whenever the file changes, as it would from a
//! control plane.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::{Bootstrap, named};

const LISTENER_TYPE: &str = "type.googleapis.com/envoy.config.listener.v3.Listener";
const FILTERS_OF_LISTENER: &str = "/filter_chains/0/filters/0/typed_config/http_filters";

/// The file, and what is in it.
#[derive(Debug)]
pub(super) struct ListenerFile {
    path: PathBuf,
    listener: Value,
    version: u32,
}

// === impl ListenerFile ===

impl ListenerFile {
    /// Moves the listener of a bootstrap, which has its address by now, into a file of `dir`.
    pub(super) fn split(bootstrap: &mut Bootstrap, dir: &Path) -> Result<Self> {
        let listeners = bootstrap.at("/static_resources/listeners")?.as_array_mut();
        let listener = listeners.and_then(Vec::pop).context("a bootstrap without a listener")?;
        let mut file = Self { path: dir.join("listener.json"), listener, version: 0 };
        file.write()?;
        let source = json!({ "path_config_source": { "path": file.path }, "resource_api_version": "V3" });
        let root = bootstrap.0.as_object_mut().context("the bootstrap is no mapping")?;
        root.insert("dynamic_resources".to_owned(), json!({ "lds_config": source }));
        // Whoever reads any configuration from elsewhere has to have a name.
        root.insert("node".to_owned(), json!({ "id": "warmpath", "cluster": "warmpath" }));
        Ok(file)
    }

    /// Changes the listener's filters, and the file.
    pub(super) fn change(&mut self, change: impl FnOnce(&mut Value) -> Result<()>) -> Result<()> {
        let filters = self.listener.pointer_mut(FILTERS_OF_LISTENER).context("no http_filters")?;
        change(filters)?;
        self.write()
    }

    /// Replaced as a whole, which is what Envoy watches for.
    fn write(&mut self) -> Result<()> {
        self.version += 1;
        let mut resource = self.listener.clone();
        resource["@type"] = LISTENER_TYPE.into();
        let response = json!({ "version_info": self.version.to_string(), "resources": [resource] });
        let new = self.path.with_extension("new");
        std::fs::write(&new, serde_json::to_vec(&response)?)?;
        std::fs::rename(&new, &self.path).with_context(|| format!("cannot write {}", self.path.display()))
    }
}

/// Replaces the configuration of the filter `warmpath` among these.
pub fn set_filter_among(filters: &mut Value, config: &Value) -> Result<()> {
    let filter = named(filters, "warmpath")?;
    let value = filter.pointer_mut("/typed_config/config/configuration/value");
    *value.context("the filter has no configuration")? = Value::String(config.to_string());
    Ok(())
}
