// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"regexp"
	"strings"
	"time"
)

// described is what `git describe --tags --always --dirty` prints: a tag, how many commits ago that
// was and the commit; or, without a tag, the commit alone.
var (
	described = regexp.MustCompile(`^v?([0-9]+(?:\.[0-9]+)*)(?:-([a-z]+[.0-9]*))?(?:-([0-9]+)-(g[0-9a-f]+))?(-dirty)?$`)
	commit    = regexp.MustCompile(`^([0-9a-f]{7,40})(-dirty)?$`)
)

// packageVersion is a version that dpkg and rpm both take and order as it is meant: a release candidate
// before the release, later commits after it, a tree without tags before everything. In both "~" sorts
// before the end of a version; neither takes "-" in this place.
func packageVersion(describe string, epoch time.Time) (string, error) {
	if m := described.FindStringSubmatch(describe); m != nil && strings.Contains(m[1], ".") {
		v := m[1]
		if m[2] != "" {
			v += "~" + m[2]
		}
		if m[3] != "" {
			v += "+" + m[3] + "." + m[4]
		}
		return v + strings.Replace(m[5], "-", "+", 1), nil
	}
	if m := commit.FindStringSubmatch(describe); m != nil {
		return "0.0.0~" + epoch.Format("20060102150405") + "." + m[1] + strings.Replace(m[2], "-", "+", 1), nil
	}
	return "", fmt.Errorf("%q is neither a version such as v1.2.3-rc.1 nor a commit", describe)
}
