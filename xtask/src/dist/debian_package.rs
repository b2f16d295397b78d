//! Builds one Debian package: copies its files and those of `packaging/debian/` into a folder, and packs the folder with `dpkg-deb`.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::dist::{source, tool};

const TEMPLATES: &str = "packaging/debian";
const SCRIPTS: [&str; 4] = ["preinst", "postinst", "prerm", "postrm"];

/// A package that is being built.
pub(super) struct Package {
    name: String,
    version: String,
    architecture: String,
    root: PathBuf,
    dependencies: String,
}

impl Package {
    pub(super) fn new(work: &Path, name: &str, version: &str, architecture: &str) -> Result<Self> {
        let root = work.join(format!("package-{name}"));
        fs::create_dir_all(root.join("DEBIAN"))?;
        fs::set_permissions(&root, fs::Permissions::from_mode(0o755))?;
        Ok(Self {
            name: name.to_owned(),
            version: version.to_owned(),
            architecture: architecture.to_owned(),
            root,
            dependencies: String::new(),
        })
    }

    pub(super) fn set_dependencies(&mut self, dependencies: &str) {
        dependencies.clone_into(&mut self.dependencies);
    }

    /// Adds a file; `place` is its path below `/`.
    pub(super) fn file(&mut self, from: &Path, place: &str, mode: u32) -> Result<()> {
        let to = self.root.join(place);
        fs::create_dir_all(to.parent().unwrap_or(&self.root))?;
        fs::copy(from, &to).with_context(|| from.display().to_string())?;
        fs::set_permissions(&to, fs::Permissions::from_mode(mode))?;
        Ok(())
    }

    /// Adds a file compressed with gzip; `place` is its path below `/`.
    pub(super) fn compressed(&mut self, from: &Path, place: &str) -> Result<()> {
        self.file(from, place, 0o644)?;
        let file = self.root.join(place).display().to_string();
        tool("gzip", &["-9", "--no-name", &file]).map(drop)
    }

    /// Adds the license and the documentation, which each package contains.
    pub(super) fn documentation(&mut self) -> Result<()> {
        let folder = format!("usr/share/doc/{}", self.name);
        for (file, name) in [
            ("packaging/debian/copyright", "copyright"),
            ("LICENSE-MIT", "LICENSE-MIT"),
            ("LICENSE-APACHE", "LICENSE-APACHE"),
            ("README.md", "README.md"),
        ] {
            self.file(&source(file), &format!("{folder}/{name}"), 0o644)?;
        }
        Ok(())
    }

    /// Packs the package into `out`. Returns its file.
    pub(super) fn write(self, out: &Path, level: &str) -> Result<PathBuf> {
        let own = self.root.join("DEBIAN");
        let mut sums = String::new();
        let mut bytes = 0;
        for file in all_files(&self.root.join("usr"))? {
            let place = file.strip_prefix(&self.root)?.display().to_string();
            let sum = tool("md5sum", &[&file.display().to_string()])?;
            let sum = sum.split_whitespace().next().unwrap_or_default();
            let _ = writeln!(sums, "{sum}  {place}");
            bytes += fs::metadata(&file)?.len();
        }
        fs::write(own.join("md5sums"), sums)?;
        let template = source(&format!("{TEMPLATES}/{}.control", self.name));
        let template =
            fs::read_to_string(&template).with_context(|| template.display().to_string())?;
        let control = control(
            &template,
            &[
                ("@VERSION@", &self.version),
                ("@ARCHITECTURE@", &self.architecture),
                ("@DEPENDS@", &self.dependencies),
                ("@SIZE@", &bytes.div_ceil(1024).to_string()),
            ],
        );
        fs::write(own.join("control"), control)?;
        for script in SCRIPTS {
            let from = source(&format!("{TEMPLATES}/{}.{script}", self.name));
            if from.exists() {
                fs::copy(&from, own.join(script))?;
                fs::set_permissions(own.join(script), fs::Permissions::from_mode(0o755))?;
            }
        }
        let name = format!("{}_{}_{}.deb", self.name, self.version, self.architecture);
        let file = out.join(name);
        let (root, to) = (self.root.display().to_string(), file.display().to_string());
        tool(
            "dpkg-deb",
            &["--root-owner-group", "-Zxz", level, "--build", &root, &to],
        )?;
        Ok(file)
    }
}

fn all_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => files.extend(all_files(&entry.path())?),
            false => files.push(entry.path()),
        }
    }
    files.sort();
    Ok(files)
}

/// Replaces the placeholders in a template by their values.
fn control(template: &str, values: &[(&str, &str)]) -> String {
    let mut text = template.to_owned();
    for (name, value) in values {
        text = text.replace(name, value);
    }
    text
}

/// Returns the packages of the program's shared libraries. The output of `objdump -T` has the C library's version that the newest symbol
/// needs.
pub(super) fn libraries(symbols: &str) -> String {
    let versions = symbols.split("GLIBC_").skip(1).filter_map(|rest| {
        let text: String = rest
            .chars()
            .take_while(|c| c.is_ascii_digit() || *c == '.')
            .collect();
        let parts: Option<Vec<u32>> = text.split('.').map(|part| part.parse().ok()).collect();
        parts
    });
    let newest = versions.max().unwrap_or_default();
    let newest: Vec<String> = newest.iter().map(u32::to_string).collect();
    let mut packages = match newest.is_empty() {
        true => "libc6".to_owned(),
        false => format!("libc6 (>= {})", newest.join(".")),
    };
    if symbols.contains("GCC_") {
        packages.push_str(", libgcc-s1");
    }
    packages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_symbol_determines_the_c_library() {
        let symbols = "0 DF *UND* (GLIBC_2.9) accept4\n0 DF *UND* (GLIBC_2.34) pthread_create\n0 (GCC_3.3) _Unwind\n";
        assert_eq!(libraries(symbols), "libc6 (>= 2.34), libgcc-s1");
        assert_eq!(libraries(""), "libc6");
    }

    #[test]
    fn a_template_is_filled_in() {
        let text = control(
            "Version: @VERSION@\nSize: @SIZE@\n",
            &[("@VERSION@", "1.2"), ("@SIZE@", "7")],
        );
        assert_eq!(text, "Version: 1.2\nSize: 7\n");
    }
}
