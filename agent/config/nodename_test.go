// SPDX-License-Identifier: Apache-2.0

package config

import "testing"

func TestNodeName(t *testing.T) {
	const dropIn = "usr/lib/systemd/system/kubelet.service.d/"
	tests := map[string]struct {
		files map[string]string
		want  string
	}{
		"the host's name where nothing else is said": {map[string]string{"etc/hostname": "Worker-1.example.org\n"},
			"worker-1.example.org"},
		"no name for a localhost":                {map[string]string{"etc/hostname": "localhost.localdomain\n"}, ""},
		"no name for a host without one":         {nil, ""},
		"no name that Kubernetes could not have": {map[string]string{"etc/hostname": "a_b\n"}, ""},
		"the configuration before all": {map[string]string{site: header + "node: {name: a}\n",
			"etc/default/kubelet": "X=--hostname-override=b"}, "a"},
		"kubeadm's flags":                  {map[string]string{"var/lib/kubelet/kubeadm-flags.env": `KUBELET_KUBEADM_ARGS="--v=2 --hostname-override=B --x=y"` + "\n", "etc/hostname": "a"}, "b"},
		"the flag and its value apart":     {map[string]string{"var/lib/kubelet/kubeadm-flags.env": `A="--hostname-override b"`}, "b"},
		"extra arguments before kubeadm's": {map[string]string{"etc/sysconfig/kubelet": "KUBELET_EXTRA_ARGS=--hostname-override=c\n", "var/lib/kubelet/kubeadm-flags.env": `A="--hostname-override=b"`}, "c"},
		"the last of several flags": {map[string]string{"etc/default/kubelet": "A=--hostname-override=b " +
			"--hostname-override=c\n"}, "c"},
		"a remark says nothing": {map[string]string{"etc/default/kubelet": "# A=--hostname-override=b\n",
			"etc/hostname": "a"}, "a"},
		"a variable in node.env": {map[string]string{"etc/kubernetes/node.env": "KUBELET_NODE_NAME=b\n",
			"etc/hostname": "a"}, "b"},
		"a variable in a drop-in, and its use": {map[string]string{dropIn +
			"20-node-name.conf": "[Service]\nEnvironment=\"A=1\" \"KUBELET_NODE_NAME=ip-10-0-0-1.ec2.internal\"\n",
			"usr/lib/systemd/system/kubelet.service": "ExecStart=kubelet --hostname-override=${KUBELET_NODE_NAME} \\\n --v=2\n"},
			"ip-10-0-0-1.ec2.internal"},
		"the later drop-in": {map[string]string{dropIn + "20.conf": "Environment=NODE_NAME=b\n",
			dropIn + "10.conf": "Environment=NODE_NAME=c\n"}, "b"},
		"files beside the drop-ins do not count": {map[string]string{dropIn +
			"20.conf.bak": "Environment=NODE_NAME=b\n", "etc/hostname": "a"}, "a"},
		"a variable of another name is not the node's": {map[string]string{"etc/kubernetes/node.env": "MY_NODE_NAME=b\n",
			"etc/hostname": "a"}, "a"},
	}
	for sentence, tt := range tests {
		t.Run(sentence, func(t *testing.T) {
			o := Options{Root: host(t, tt.files)}
			s, err := Load(o)
			if err != nil {
				t.Fatal(err)
			}
			if have, err := NodeName(o, s); err != nil || have != tt.want {
				t.Errorf("have %q, %v; want %q", have, err, tt.want)
			}
		})
	}
}

func TestANodeNameThatMayBeWrongComesWithAnError(t *testing.T) {
	o := Options{Root: host(t, map[string]string{"etc/default/kubelet/x": "", "etc/hostname": "a",
		"etc/kubernetes/node.env": "-> /nowhere/else"})}
	if name, err := NodeName(o, Settings{}); err == nil || name != "a" {
		t.Errorf("have %q, %v", name, err)
	}
}
