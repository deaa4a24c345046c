// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bufio"
	"context"
	"fmt"
	"slices"
	"strings"
)

// Release says which release of the running machine's distribution a root is of.
type Release int

// Same is the running machine's own. Newer is a later one, with the systemd of the next generation of
// hosts: 257 in Debian 13.
const (
	Same Release = iota
	Newer
)

// newer are the later releases, by origin.
var newer = map[string]string{"Debian": "trixie", "Ubuntu": "resolute"}

// release names the distribution release of the running machine, whose own sources, mirrors and
// keyrings serve the root.
type release struct {
	origin   string // as in the repository's Release file
	codename string
}

// of is the codename of the release that is asked for.
func (r release) of(which Release) string {
	if which == Newer {
		return newer[r.origin]
	}
	return r.codename
}

func thisRelease(osRelease []byte) (release, error) {
	v := map[string]string{}
	for line := range strings.Lines(string(osRelease)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		v[key] = strings.Trim(value, `"'`)
	}
	origin, ok := map[string]string{"debian": "Debian", "ubuntu": "Ubuntu"}[v["ID"]]
	if !ok || v["VERSION_CODENAME"] == "" {
		return release{}, fmt.Errorf("this machine is %q %q: a test host's root is made by apt, from the sources of Debian "+
			"or Ubuntu", v["ID"], v["VERSION_ID"])
	}
	return release{origin, v["VERSION_CODENAME"]}, nil
}

// indexFormat makes apt-get(8) print one line for each index of packages it is configured with, in
// whatever format and file the administrator wrote the source.
const indexFormat = "$(ORIGIN)\t$(CODENAME)\t$(REPO_URI)\t$(RELEASE)\t$(COMPONENT)"

// sources picks the distribution's own repositories from what apt printed for indexFormat and turns
// them into sources.list(5) lines for the release of that codename. Third parties' repositories have no place in a test
// host.
func (r release) sources(index, codename string) ([]string, error) {
	var lines []string
	for line := range strings.Lines(index) {
		f := strings.Split(strings.TrimSpace(line), "\t")
		if len(f) != 5 || f[0] != r.origin {
			continue
		}
		pocket, ok := strings.CutPrefix(f[1], r.codename)
		if !ok || !slices.Contains([]string{"", "-updates", "-security"}, pocket) {
			continue
		}
		name := f[3] // may be a suite, such as stable
		if codename != r.codename {
			name = codename + pocket
		}
		if s := fmt.Sprintf("deb %s %s %s", f[2], name, f[4]); !slices.Contains(lines, s) {
			lines = append(lines, s)
		}
	}
	if len(lines) == 0 {
		return nil, fmt.Errorf("apt knows no source of %s %s: has apt-get update run?", r.origin, r.codename)
	}
	return lines, nil
}

// acquireOptions picks from `apt-config dump` how this machine reaches its mirrors: proxies, TLS,
// retries and tolerance for old snapshots.
func acquireOptions(dump string) []string {
	var opts []string
	for line := range strings.Lines(dump) {
		line = strings.TrimSpace(line)
		for _, prefix := range []string{"Acquire::http::", "Acquire::https::", "Acquire::Check-", "Acquire::Retries ",
			"Acquire::Max-ValidTime "} {
			if strings.HasPrefix(line, prefix) && !strings.HasSuffix(line, `"";`) {
				opts = append(opts, line)
			}
		}
	}
	return opts
}

// aptSources returns the sources of the release of that codename and the acquire options of the running machine.
func aptSources(ctx context.Context, r release, codename string) (lines, opts []string, err error) {
	index, err := output(ctx, "apt-get", "indextargets", "--format", indexFormat, "Created-By: Packages")
	if err != nil {
		return nil, nil, err
	}
	if lines, err = r.sources(index, codename); err != nil {
		return nil, nil, err
	}
	dump, err := output(ctx, "apt-config", "dump", "Acquire")
	return lines, acquireOptions(dump), err
}

// lastLines is the end of a log, for errors.
func lastLines(log string, n int) string {
	var lines []string
	s := bufio.NewScanner(strings.NewReader(log))
	for s.Scan() {
		if t := strings.TrimSpace(s.Text()); t != "" {
			lines = append(lines, t)
		}
	}
	return strings.Join(lines[max(0, len(lines)-n):], "; ")
}
