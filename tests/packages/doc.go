// SPDX-License-Identifier: Apache-2.0

// Package packages tests what a distribution, an image builder and an administrator get: that DEB, RPM
// and tar come out of the sources bit for bit the same, hold the same files, pass lintian and rpmlint,
// stay small, and live through install, upgrade, downgrade, removal and purge on a booted host.
//
// It builds the packages itself, from copies of the working tree, and leaves dist/ alone. It needs root,
// the build tag real, and Debian's rpm, rpmlint and lintian; a missing part is a failure.
package packages
