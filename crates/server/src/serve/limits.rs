//! The limits of the HTTP server, from the configuration.

use std::time::Duration;

use dunlin_config::Config;
use dunlin_net::{HEAD_FIELDS_MAX, HeadLimits};

use crate::http::{connection::ConnectionLimits, connection_table::TableLimits};

pub(super) fn head_limits(config: &Config) -> HeadLimits {
    HeadLimits { head_bytes_max: config.net.head_bytes_max, request_line_bytes_max: config.net.request_line_bytes_max }
}

pub(super) fn table_limits(config: &Config) -> TableLimits {
    TableLimits {
        connections_max: config.net.http_connections_max,
        address_connections_max: config.net.http_address_connections_max,
        reserved_max: config.net.http_reserved_connections_max,
    }
}

pub(super) fn connection_limits(config: &Config) -> ConnectionLimits {
    ConnectionLimits {
        head_bytes_max: config.net.head_bytes_max,
        head_fields_max: HEAD_FIELDS_MAX,
        head_timeout: Duration::from_millis(config.net.head_timeout_ms),
        idle_timeout: Duration::from_millis(config.net.idle_timeout_ms),
    }
}
