module github.com/node-cert-agent/node-cert-agent/tests/exposition

go 1.26.0

require (
	github.com/node-cert-agent/node-cert-agent v0.0.0
	github.com/prometheus/client_golang v1.24.0
	github.com/prometheus/common v0.70.0
)

require (
	github.com/coreos/go-systemd/v22 v22.7.0 // indirect
	github.com/go-json-experiment/json v0.0.0-20260820222146-c27c302e5fc3 // indirect
	github.com/munnerz/goautoneg v0.0.0-20191010083416-a7dc8b61c822 // indirect
	github.com/prometheus/client_model v0.6.2 // indirect
	golang.org/x/sys v0.49.0 // indirect
	google.golang.org/protobuf v1.36.12-0.20260120151049-f2248ac996af // indirect
)

replace github.com/node-cert-agent/node-cert-agent => ../..
