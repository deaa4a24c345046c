// SPDX-License-Identifier: Apache-2.0

//go:build deps

// Package deps keeps the agreed libraries in go.mod until the code that uses them has landed.
package deps

import (
	_ "github.com/VictoriaMetrics/metrics"
	_ "github.com/coreos/go-systemd/v22/daemon"
	_ "github.com/coreos/go-systemd/v22/dbus"
	_ "github.com/coreos/go-systemd/v22/journal"
	_ "github.com/fsnotify/fsnotify"
	_ "github.com/go-json-experiment/json/jsontext"
	_ "github.com/godbus/dbus/v5"
	_ "github.com/google/renameio/v2"
	_ "github.com/spf13/cobra"
	_ "go.uber.org/zap"
	_ "go.yaml.in/yaml/v3"
	_ "golang.org/x/sys/unix"
	_ "k8s.io/client-go/rest"
	_ "k8s.io/client-go/tools/clientcmd"
)
