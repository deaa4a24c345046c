// SPDX-License-Identifier: Apache-2.0

//go:build crd

package main

// OpenShift's ControllerConfig definition is read from this module's folder in the module cache.
// Nothing is linked: the tag only keeps the requirement in go.mod.
import _ "github.com/openshift/api/machineconfiguration/v1"
