// SPDX-License-Identifier: Apache-2.0

// Package config turns the administrator's configuration into Settings: fragments (files) are
// parsed into inputs (key, value, place), inputs of all layers are merged key by key, and the merged
// inputs are validated as a whole.
//
// It owns the format config.node-cert-agent.io/v1alpha1 and the rules of what may be asked of the
// host: where managed files may be, which units and verbs may be on the allowlist. Both halves of the
// agent read their configuration here, and only here.
//
// It is strict: an unknown or repeated key, a value of the wrong type or out of range, an alias or a
// second document is an Error that names file, line and key; several problems are reported
// together. It reads only regular files that root alone can have written, refuses links other than
// masks, and never guesses.
//
// The order of directories and the masks are those of systemd; see systemd.unit(5) and
// https://uapi-group.org/specifications/specs/configuration_files_specification.
package config
