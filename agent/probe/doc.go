// SPDX-License-Identifier: Apache-2.0

// Package probe asks the consumers of certificate files over TLS whether they use the bytes on disk.
//
// It owns the handshake (see) and the verdict on what was seen (judge), which is pure. It promises to
// send no credentials, neither a client certificate nor a request, and to trust nothing of what the
// server says for anything but the verdict. A prober holds no state; who asks decides when an answer
// is void.
//
// It does not prove more than a server shows before it knows who asks: the names of the CAs it
// accepts and how many there are, not their keys. Where old and new content look the same it says so
// instead of guessing. A server that insists on a client certificate logs that it got none.
//
// Sources: RFC 8446 4.2.4 and RFC 5246 7.4.4 (certificate_authorities), crypto/tls
// CertificateRequestInfo.AcceptableCAs, k8s.io/apiserver pkg/server/dynamiccertificates/tlsconfig.go,
// and for kubelets before 1.36 the feature gate ReloadKubeletClientCAFile.
package probe
