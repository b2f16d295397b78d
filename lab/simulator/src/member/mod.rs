//! One member of the simulated ring, with its consensus, store and network. Its process is a runtime with a clock of its own. Failures are
//! injected into its disk.

mod admin_calls;
mod answering;
mod asking;
mod broken_movers;
mod clients;
mod clock;
mod converting;
mod directory;
mod disk_pace;
mod file_repair;
mod hosts;
mod mysqld;
mod neighbours;
mod process;
mod process_setup;
mod real_transport;
mod unsynced_meta;
mod waiting;
mod watched_log;
mod watched_starts;

pub(crate) use admin_calls::{AdminCall, AdminCalls};
pub(crate) use asking::{Asking, OpenFailure};
pub(crate) use clock::ClockRate;
pub(crate) use converting::ConversionCommand;
pub(crate) use directory::Directory;
pub(crate) use disk_pace::DiskPace;
pub(crate) use file_repair::FileRepair;
pub(crate) use hosts::Hosts;
pub(crate) use mysqld::{Host, remove_folders, without_folder_names};
pub(crate) use neighbours::{Neighbours, recipient_in};
pub(crate) use process::{Process, Started};
pub(crate) use process_setup::{LogOptions, ProcessSetup};
pub(crate) use real_transport::{RealTransport, upgraded};
pub(crate) use waiting::Waiting;
