// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
)

// kubeletFiles may hold the name under which the kubelet registers, the one that the kubelet heeds
// most first: kubeadm puts the extra arguments last on the command line; OpenShift and cloud images
// set a variable, in a file or a drop-in of the unit. A directory stands for its *.conf files.
var kubeletFiles = []string{
	"etc/sysconfig/kubelet",
	"etc/default/kubelet",
	"var/lib/kubelet/kubeadm-flags.env",
	"etc/kubernetes/node.env",
	"etc/systemd/system/kubelet.service.d",
	"run/systemd/system/kubelet.service.d",
	"usr/lib/systemd/system/kubelet.service.d",
	"etc/systemd/system/kubelet.service",
	"usr/lib/systemd/system/kubelet.service",
}

// NodeName is the configured name of the node, else the one that the kubelet is given, else the
// host's unless that is a localhost. Empty means that the name cannot be known yet. The error tells
// of files that exist and cannot be read, in which case the name may not be the kubelet's.
func NodeName(o Options, s Settings) (string, error) {
	if s.NodeName != "" {
		return s.NodeName, nil
	}
	root, err := os.OpenRoot(cmp.Or(o.Root, "/"))
	if err != nil {
		return "", err
	}
	defer root.Close()
	var texts []string
	var unread []error
	for _, name := range kubeletFiles {
		more, err := readAny(root, name)
		texts, unread = append(texts, more...), append(unread, err)
	}
	hostname, err := hostName(root, o.plain())
	return nodeName(texts, hostname), errors.Join(append(unread, err)...)
}

// readAny gives the text of a file, or of a directory's *.conf files, the last name first.
func readAny(root *os.Root, name string) (texts []string, err error) {
	info, err := root.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	names := []string{name}
	if info.IsDir() {
		// The pattern is well-formed, which is all that Glob reports.
		names, _ = fs.Glob(root.FS(), path.Join(name, "*.conf"))
		slices.Reverse(names)
	}
	var unread []error
	for _, n := range names {
		f, err := root.Open(n)
		if err != nil {
			unread = append(unread, err)
			continue
		}
		text, err := io.ReadAll(io.LimitReader(f, maxFile))
		f.Close()
		texts, unread = append(texts, string(text)), append(unread, err)
	}
	return texts, errors.Join(unread...)
}

// hostName is the kernel's name of the host; beneath another root it is what that root would boot as.
func hostName(root *os.Root, plain bool) (string, error) {
	if !plain {
		return os.Hostname()
	}
	text, err := root.ReadFile("etc/hostname")
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return string(text), err
}

var (
	remark       = regexp.MustCompile(`(?m)^[ \t]*[#;].*$`)
	overrideFlag = regexp.MustCompile(`--hostname-override(?:=|[ \t]+)["']?([^\s"'\\]+)`)
	nameVariable = regexp.MustCompile(`(?m)(?:^|[\s"'=])(?:KUBELET_)?NODE_NAME=["']?([^\s"'\\]+)`)
)

// nodeName finds the name in the texts of the kubelet's files, the first text that has one winning,
// and falls back to the hostname. Names are compared as the kubelet makes them: in lower case.
func nodeName(texts []string, hostname string) string {
	for _, text := range texts {
		text = remark.ReplaceAllString(text, "")
		for _, re := range []*regexp.Regexp{overrideFlag, nameVariable} {
			for _, m := range slices.Backward(re.FindAllStringSubmatch(text, -1)) {
				// A reference to a variable says nothing; the variable is in one of the texts.
				if name := strings.ToLower(m[1]); dnsName(name) == nil {
					return name
				}
			}
		}
	}
	name := strings.ToLower(strings.TrimSpace(hostname))
	if strings.HasPrefix(name, "localhost") || dnsName(name) != nil {
		return ""
	}
	return name
}
