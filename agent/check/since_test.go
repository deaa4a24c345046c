// SPDX-License-Identifier: Apache-2.0

package check

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// ofOldest are the options that the oldest systemd knows, by its manual pages. An option that is neither here
// nor in since has to be looked up in systemd's NEWS, and goes where it belongs.
const ofOldest = `Accept After AmbientCapabilities Before BindReadOnlyPaths CapabilityBoundingSet Description DevicePolicy Documentation
Environment ExecStart Group IPAddressDeny InaccessiblePaths JobRunningTimeoutSec KeyringMode LimitCORE LimitNOFILE
ListenStream LockPersonality MemoryDenyWriteExecute MemoryMax MemorySwapMax NoNewPrivileges NotifyAccess OOMScoreAdjust
PrivateDevices PrivateMounts PrivateNetwork PrivateTmp PrivateUsers ProtectControlGroups ProtectHome
ProtectKernelModules ProtectKernelTunables ProtectSystem ReadOnlyPaths ReadWritePaths RemainAfterExit RemoveIPC
RemoveOnStop Requires Restart RestartPreventExitStatus RestartSec RestrictAddressFamilies RestrictNamespaces
RuntimeDirectory RuntimeDirectoryMode RuntimeDirectoryPreserve
RestrictRealtime SocketGroup SocketMode SocketUser StartLimitIntervalSec StateDirectory StateDirectoryMode
SystemCallArchitectures SystemCallErrorNumber SystemCallFilter TasksMax TemporaryFileSystem TimeoutStartSec
TimeoutStopSec TriggerLimitIntervalSec Type UMask User WantedBy Wants WatchdogSec`

// ourOptions are those of all units and drop-ins that are shipped.
func ourOptions(t *testing.T) (out []string) {
	t.Helper()
	for _, tree := range []string{"../../systemd", "../../deb/tree"} {
		err := filepath.WalkDir(filepath.Join(tree, "usr/lib/systemd/system"),
			func(p string, d fs.DirEntry, err error) error {
				if err != nil || d.IsDir() {
					return err
				}
				text, err := os.ReadFile(p)
				for _, m := range regexp.MustCompile(`(?m)^([A-Za-z]+)=`).FindAllStringSubmatch(string(text), -1) {
					out = append(out, m[1])
				}
				if strings.Contains(string(text), "\nType=exec\n") {
					out = append(out, "Type=exec")
				}
				return err
			})
		if err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func TestEveryOptionOfOurUnitsIsKnownToTheOldestSystemdOrSaidToBeMissing(t *testing.T) {
	// Not in a unit of ours, but in the drop-in of docs/usage/install.md.
	options := append(ourOptions(t), "LoadCredential")
	old := strings.Fields(ofOldest)
	var later []string
	for _, s := range since {
		for option := range strings.SplitSeq(s.what, ", ") {
			later = append(later, strings.TrimSuffix(option, "="))
		}
	}
	for _, option := range options {
		if slices.Contains(old, option) == slices.Contains(later, option) {
			t.Errorf("%s is not in exactly one of the two lists", option)
		}
	}
	for _, option := range slices.Concat(old, later) {
		if !slices.Contains(options, option) {
			t.Errorf("%s is listed, and no unit has it", option)
		}
	}
	if since[len(since)-1].version != complete {
		t.Errorf("the last option came with %d, and complete is %d", since[len(since)-1].version, complete)
	}
}
