// SPDX-License-Identifier: Apache-2.0

package pair

import (
	"path"
	"strings"
)

// Identify says which program a command line is of; none for any other.
func Identify(argv []string) (Program, bool) {
	if len(argv) == 0 {
		return "", false
	}
	p := Program(path.Base(argv[0]))
	// k3s and RKE2 run everything else inside of one process, and have an agent without a control plane, too.
	if p == K3s || p == RKE2 {
		return p, len(argv) > 1 && argv[1] == "server"
	}
	switch p {
	case APIServer, ControllerManager, Scheduler, Etcd, Kubelet:
		return p, true
	}
	return "", false
}

// Flags are the flags of a command line, by their names without dashes: --name=value, --name value, and a bare
// --name, which is "true". The last of a name counts, as for all of these programs. Environment lends those flags of
// etcd that the command line does not have: ETCD_CERT_FILE is cert-file.
func Flags(argv, environment []string) map[string]string {
	flags := map[string]string{}
	for _, line := range environment {
		name, value, ok := strings.Cut(line, "=")
		if name, ours := strings.CutPrefix(strings.TrimSpace(name), "ETCD_"); ok && ours {
			flags[strings.ToLower(strings.ReplaceAll(name, "_", "-"))] = strings.Trim(strings.TrimSpace(value), `"'`)
		}
	}
	for i := 1; i < len(argv); i++ {
		name, isFlag := strings.CutPrefix(argv[i], "-")
		if !isFlag {
			continue
		}
		name, value, ok := strings.Cut(strings.TrimPrefix(name, "-"), "=")
		if !ok {
			value = "true"
			if i+1 < len(argv) && !strings.HasPrefix(argv[i+1], "-") {
				i++
				value = argv[i]
			}
		}
		flags[name] = value
	}
	return flags
}
