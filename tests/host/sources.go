// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bufio"
	"context"
	"fmt"
	"slices"
	"strings"
)

// release names the distribution release of the running machine: the root is of the same one, so
// that the machine's own sources, mirrors and keyrings serve it.
type release struct {
	origin   string // as in the repository's Release file
	codename string
}

func thisRelease(osRelease []byte) (release, error) {
	v := map[string]string{}
	for line := range strings.Lines(string(osRelease)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		v[key] = strings.Trim(value, `"'`)
	}
	origin, ok := map[string]string{"debian": "Debian", "ubuntu": "Ubuntu"}[v["ID"]]
	if !ok || v["VERSION_CODENAME"] == "" {
		return release{}, fmt.Errorf("this machine is %q %q: a test host's root is made by apt, from the sources of Debian or Ubuntu", v["ID"], v["VERSION_ID"])
	}
	return release{origin, v["VERSION_CODENAME"]}, nil
}

// indexFormat makes apt-get(8) print one line for each index of packages it is configured with, in
// whatever format and file the administrator wrote the source.
const indexFormat = "$(ORIGIN)\t$(CODENAME)\t$(REPO_URI)\t$(RELEASE)\t$(COMPONENT)"

// sources picks the distribution's own repositories from what apt printed for indexFormat and turns
// them into sources.list(5) lines. Third parties' repositories have no place in a test host.
func (r release) sources(index string) ([]string, error) {
	var lines []string
	for line := range strings.Lines(index) {
		f := strings.Split(strings.TrimSpace(line), "\t")
		if len(f) != 5 || f[0] != r.origin {
			continue
		}
		if pocket, ok := strings.CutPrefix(f[1], r.codename); !ok || !slices.Contains([]string{"", "-updates", "-security"}, pocket) {
			continue
		}
		if s := fmt.Sprintf("deb %s %s %s", f[2], f[3], f[4]); !slices.Contains(lines, s) {
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
		for _, prefix := range []string{"Acquire::http::", "Acquire::https::", "Acquire::Check-", "Acquire::Retries ", "Acquire::Max-ValidTime "} {
			if strings.HasPrefix(line, prefix) && !strings.HasSuffix(line, `"";`) {
				opts = append(opts, line)
			}
		}
	}
	return opts
}

// aptSources returns the sources of the release and the acquire options of the running machine.
func aptSources(ctx context.Context, r release) (lines, opts []string, err error) {
	index, err := output(ctx, "apt-get", "indextargets", "--format", indexFormat, "Created-By: Packages")
	if err != nil {
		return nil, nil, err
	}
	if lines, err = r.sources(index); err != nil {
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
