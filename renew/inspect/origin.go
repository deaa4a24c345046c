// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/node-cert-agent/node-cert-agent/renew/pair"
)

// components are the processes that count, and a note about each that does not.
func (h Host) components() (all []pair.Component, notes []string, err error) {
	processes, err := h.processes()
	if err != nil {
		return nil, nil, err
	}
	var manifests [][]string
	// The kubelet first: its configuration says where the manifests are.
	isKubelet := func(p process) bool { return p.program == pair.Kubelet }
	kubelets := slices.DeleteFunc(slices.Clone(processes), func(p process) bool { return !isKubelet(p) })
	processes = append(kubelets, slices.DeleteFunc(processes, isKubelet)...)
	for _, p := range processes {
		c, ok := h.component(p, manifests)
		if !ok {
			notes = append(notes, fmt.Sprintf("a process %s (pid %d, uid %d) is passed over: no static pod's manifest "+
				"and no unit of root's has its command line", p.program, p.pid, p.uid))
			continue
		}
		if c.Program == pair.Kubelet {
			manifests = append(manifests, h.manifests(c.Flags)...)
		}
		all = append(all, c)
	}
	return all, notes, nil
}

// component says what has started a process, if that is root's own file.
func (h Host) component(p process, manifests [][]string) (c pair.Component, ok bool) {
	c = pair.Component{Program: p.program, PID: p.pid, Started: p.started}
	if p.uid != 0 && p.uid != h.UID {
		return c, false
	}
	if slices.ContainsFunc(manifests, func(command []string) bool { return slices.Equal(command, p.argv) }) {
		c.Origin, c.Flags = "static pod", pair.Flags(p.argv, nil)
		return c, true
	}
	u, ok := h.unit(p.unit)
	if !ok || path.Base(u.command[0]) != path.Base(p.argv[0]) {
		return c, false
	}
	argv := p.argv
	if p.program == pair.K3s || p.program == pair.RKE2 {
		argv = u.command // what they have put in place of their command line has no flags
	}
	c.Origin, c.Flags = p.unit, pair.Flags(argv, u.environment)
	return c, true
}

// manifests are the command lines of the static pods of a kubelet. Other manifests can be read by it and not by us;
// what they start is then passed over.
func (h Host) manifests(kubelet map[string]string) (commands [][]string) {
	dir := kubelet["pod-manifest-path"]
	if file := kubelet["config"]; dir == "" && file != "" {
		var config struct {
			StaticPodPath string `yaml:"staticPodPath"`
		}
		if c, err := h.read(file); err == nil && yaml.Unmarshal(c.data, &config) == nil {
			dir = config.StaticPodPath
		}
	}
	if !path.IsAbs(dir) {
		return nil
	}
	for _, name := range h.names(dir) {
		c, err := h.read(path.Join(dir, name))
		if strings.HasPrefix(name, ".") || err != nil || c.foreign != "" {
			continue
		}
		var pod struct {
			Spec struct {
				Containers []struct {
					Command []string `yaml:"command"`
					Args    []string `yaml:"args"`
				} `yaml:"containers"`
			} `yaml:"spec"`
		}
		if yaml.Unmarshal(c.data, &pod) != nil {
			continue
		}
		for _, container := range pod.Spec.Containers {
			if len(container.Command) > 0 {
				commands = append(commands, slices.Concat(container.Command, container.Args))
			}
		}
	}
	return commands
}
