// SPDX-License-Identifier: Apache-2.0

//go:build crd

package crds

// Nothing is linked: the tag only keeps the requirement in go.mod.
import _ "sigs.k8s.io/cluster-api/cmd/clusterctl/config"
