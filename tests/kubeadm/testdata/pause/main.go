// SPDX-License-Identifier: Apache-2.0

// Command pause is what holds a pod's namespaces. It does nothing until it is told to end.
//
// It collects no children, as the pause of Kubernetes does: no pod here shares its namespace of processes.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGINT, syscall.SIGTERM)
	<-end
}
