module github.com/node-cert-agent/node-cert-agent/tests/clusterapi/crds

go 1.26.0

require sigs.k8s.io/cluster-api v1.14.2
