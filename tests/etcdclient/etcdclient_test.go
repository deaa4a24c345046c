// SPDX-License-Identifier: Apache-2.0

package etcdclient

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/node-cert-agent/node-cert-agent/renew/etcd"
	"github.com/node-cert-agent/node-cert-agent/tests/harness/must"
)

func TestBothSeeTheSame(t *testing.T) {
	for name, flags := range map[string][]string{
		"as it is":            nil,
		"without the gateway": {"--enable-grpc-gateway=false"},
	} {
		t.Run(name, func(t *testing.T) {
			ours, theirs := connect(t, start(t, flags...))
			t.Run("keys", func(t *testing.T) { sameKeys(t, ours, theirs) })
			t.Run("lists", func(t *testing.T) { sameLists(t, ours, theirs) })
			t.Run("leases", func(t *testing.T) { sameLeases(t, ours, theirs) })
			t.Run("members", func(t *testing.T) { sameMembers(t, ours, theirs) })
			t.Run("alarms", func(t *testing.T) { sameAlarms(t, ours, theirs) })
		})
	}
}

// sameKey is the key as both see it.
func sameKey(t *testing.T, ours *etcd.Client, theirs *clientv3.Client, key string) *etcd.KeyValue {
	t.Helper()
	got, err := ours.Get(t.Context(), key)
	must.Do(t, err)
	r, err := theirs.Get(t.Context(), key)
	must.Do(t, err)
	var want *etcd.KeyValue
	if len(r.Kvs) > 0 {
		kv := r.Kvs[0]
		want = &etcd.KeyValue{Key: string(kv.Key), Value: kv.Value, CreateRevision: kv.CreateRevision,
			ModRevision: kv.ModRevision, Lease: etcd.Lease(kv.Lease)}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("we see %+v, they %+v", got, want)
	}
	return got
}

func sameKeys(t *testing.T, ours *etcd.Client, theirs *clientv3.Client) {
	const key = "/node-cert-agent.io/a"
	if kv := sameKey(t, ours, theirs, key); kv != nil {
		t.Errorf("before: %+v", kv)
	}
	value := make([]byte, 256)
	for i := range value {
		value[i] = byte(i)
	}
	made, err := ours.Commit(t.Context(), etcd.Change{Key: key, Value: value})
	must.Do(t, err)
	if kv := sameKey(t, ours, theirs, key); !made.Done || kv == nil || kv.ModRevision != made.Revision {
		t.Errorf("made %+v, see %+v", made, kv)
	}
	_, err = theirs.Put(t.Context(), key, "theirs")
	must.Do(t, err)
	refused, err := ours.Commit(t.Context(), etcd.Change{Key: key, Value: value, From: made.Revision})
	must.Do(t, err)
	if kv := sameKey(t, ours, theirs, key); refused.Done || !reflect.DeepEqual(refused.Current, kv) ||
		string(kv.Value) != "theirs" {
		t.Errorf("refused %+v, see %+v", refused, kv)
	}
	gone, err := ours.Commit(t.Context(), etcd.Change{Key: key, Delete: true, From: refused.Current.ModRevision,
		Record: &etcd.KeyValue{Key: key + "b", Value: []byte("why")}})
	must.Do(t, err)
	if kv := sameKey(t, ours, theirs, key); !gone.Done || kv != nil {
		t.Errorf("gone %+v, see %+v", gone, kv)
	}
	if kv := sameKey(t, ours, theirs, key+"b"); kv == nil || kv.ModRevision != gone.Revision {
		t.Errorf("record %+v", kv)
	}
}

// sameLists holds lists of keys beside each other: whole, cut off, and beside keys with almost the same beginning.
func sameLists(t *testing.T, ours *etcd.Client, theirs *clientv3.Client) {
	const prefix = "/node-cert-agent.io/list/"
	for _, key := range []string{prefix + "b", prefix + "a", prefix, prefix + "~", prefix[:len(prefix)-1] + "0", "/node"} {
		_, err := theirs.Put(t.Context(), key, "of "+key)
		must.Do(t, err)
	}
	for _, limit := range []int{100, 4, 3, 1} {
		got, err := ours.List(t.Context(), prefix, limit)
		must.Do(t, err)
		r, err := theirs.Get(t.Context(), prefix, clientv3.WithPrefix(), clientv3.WithLimit(int64(limit)))
		must.Do(t, err)
		var want []etcd.KeyValue
		for _, kv := range r.Kvs {
			want = append(want, etcd.KeyValue{Key: string(kv.Key), Value: kv.Value, CreateRevision: kv.CreateRevision,
				ModRevision: kv.ModRevision})
		}
		if len(want) != min(limit, 4) || !reflect.DeepEqual(got, want) {
			t.Errorf("up to %d: we see %+v, they %+v", limit, got, want)
		}
	}
	if none, err := ours.List(t.Context(), "/none/", 1); err != nil || len(none) > 0 {
		t.Errorf("of none: %+v, %v", none, err)
	}
}

func sameLeases(t *testing.T, ours *etcd.Client, theirs *clientv3.Client) {
	id, err := ours.Grant(t.Context(), time.Minute)
	must.Do(t, err)
	_, err = ours.Commit(t.Context(), etcd.Change{Key: "leased", Value: []byte("1"), Lease: id})
	must.Do(t, err)
	seen, err := theirs.TimeToLive(t.Context(), clientv3.LeaseID(id), clientv3.WithAttachedKeys())
	must.Do(t, err)
	if seen.GrantedTTL != 60 || len(seen.Keys) != 1 || string(seen.Keys[0]) != "leased" {
		t.Errorf("they see %+v", seen)
	}
	if kv := sameKey(t, ours, theirs, "leased"); kv == nil || kv.Lease != id {
		t.Errorf("see %+v", kv)
	}
	must.Do(t, ours.Revoke(t.Context(), id))
	if kv := sameKey(t, ours, theirs, "leased"); kv != nil {
		t.Errorf("revoked, see %+v", kv)
	}
	granted, err := theirs.Grant(t.Context(), 77)
	must.Do(t, err)
	if ttl, err := ours.KeepAlive(t.Context(), etcd.Lease(granted.ID)); ttl != 77*time.Second || err != nil {
		t.Errorf("kept theirs for %v, %v", ttl, err)
	}
	_, err = theirs.Revoke(t.Context(), granted.ID)
	must.Do(t, err)
	if ttl, err := ours.KeepAlive(t.Context(), etcd.Lease(granted.ID)); ttl != 0 || err != nil {
		t.Errorf("kept what they revoked for %v, %v", ttl, err)
	}
}

// sameMembers has a second one, which never starts and learns.
func sameMembers(t *testing.T, ours *etcd.Client, theirs *clientv3.Client) {
	_, err := theirs.MemberAddAsLearner(t.Context(), []string{"https://127.0.0.1:1", "https://127.0.0.1:2"})
	must.Do(t, err)
	list, err := theirs.MemberList(t.Context())
	must.Do(t, err)
	var want []etcd.Member
	for _, m := range list.Members {
		want = append(want, etcd.Member{ID: m.ID, Name: m.Name, PeerURLs: m.PeerURLs, ClientURLs: m.ClientURLs,
			Learner: m.IsLearner})
	}
	if got, err := ours.Members(t.Context()); err != nil || len(want) != 2 || !reflect.DeepEqual(got, want) {
		t.Errorf("we see %+v, they %+v, %v", got, want, err)
	}
	s, err := theirs.Status(t.Context(), theirs.Endpoints()[0])
	must.Do(t, err)
	got, err := ours.Status(t.Context())
	must.Do(t, err)
	same := etcd.Status{Cluster: s.Header.ClusterId, Member: s.Header.MemberId, Version: s.Version, DBSize: s.DbSize,
		Leader: s.Leader, RaftTerm: s.RaftTerm, AppliedIndex: got.AppliedIndex, Errors: s.Errors, Learner: s.IsLearner}
	if !reflect.DeepEqual(got, same) || got.AppliedIndex < s.RaftAppliedIndex || got.Leader == 0 {
		t.Errorf("we see %+v, they %+v", got, s)
	}
}

func sameAlarms(t *testing.T, ours *etcd.Client, theirs *clientv3.Client) {
	if got, err := ours.Alarms(t.Context()); err != nil || len(got) != 0 {
		t.Errorf("before: %+v, %v", got, err)
	}
	raise := etcdserverpb.NewMaintenanceClient(theirs.ActiveConnection())
	_, err := raise.Alarm(t.Context(), &etcdserverpb.AlarmRequest{Action: etcdserverpb.AlarmRequest_ACTIVATE, MemberID: 7,
		Alarm: etcdserverpb.AlarmType_NOSPACE})
	must.Do(t, err)
	if got, err := ours.Alarms(t.Context()); err != nil || !reflect.DeepEqual(got, []etcd.Alarm{{Member: 7, Kind: etcd.NoSpace}}) {
		t.Errorf("we see %+v, %v", got, err)
	}
	s, err := ours.Status(t.Context())
	if err != nil || len(s.Errors) == 0 {
		t.Errorf("status %+v, %v", s, err)
	}
	_, err = ours.Commit(t.Context(), etcd.Change{Key: "full", Value: []byte("1")})
	if status, ok := errors.AsType[*etcd.StatusError](err); !ok || status.Code != etcd.ResourceExhausted {
		t.Errorf("written: %v", err)
	}
}

// TestWithAuthenticationACertificateIsAUser by its common name. A role for the lock is enough for all but one call.
func TestWithAuthenticationACertificateIsAUser(t *testing.T) {
	ours, theirs := connect(t, start(t))
	const prefix = "/node-cert-agent.io/renewal/"
	auth := theirs.Auth
	_, err := auth.RoleAdd(t.Context(), "renewal")
	must.Do(t, err)
	_, err = auth.RoleGrantPermission(t.Context(), "renewal", prefix, clientv3.GetPrefixRangeEnd(prefix),
		clientv3.PermissionType(clientv3.PermReadWrite))
	must.Do(t, err)
	_, err = auth.UserAdd(t.Context(), "root", "secret")
	must.Do(t, err)
	_, err = auth.UserGrantRole(t.Context(), "root", "root")
	must.Do(t, err)
	// The pair of the API server is at hand.
	_, err = auth.UserAddWithOptions(t.Context(), "kube-apiserver", "", &clientv3.UserAddOptions{NoPassword: true})
	must.Do(t, err)
	for _, role := range []string{"root", "renewal"} {
		_, err = auth.UserGrantRole(t.Context(), "kube-apiserver", role)
		must.Do(t, err)
	}
	_, err = auth.AuthEnable(t.Context())
	must.Do(t, err)
	if s, err := ours.Status(t.Context()); err != nil || s.Leader == 0 {
		t.Errorf("status for root %+v, %v", s, err)
	}
	_, err = auth.UserRevokeRole(t.Context(), "kube-apiserver", "root")
	must.Do(t, err)

	if members, err := ours.Members(t.Context()); err != nil || len(members) != 1 {
		t.Errorf("members %+v, %v", members, err)
	}
	denied := func(what string, err error) {
		t.Helper()
		if status, ok := errors.AsType[*etcd.StatusError](err); !ok || status.Code != etcd.PermissionDenied {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err = ours.Status(t.Context())
	denied("status", err)
	if alarms, err := ours.Alarms(t.Context()); err != nil || len(alarms) != 0 {
		t.Errorf("alarms %+v, %v", alarms, err)
	}
	oneAfterTheOther(t, ours)
	_, err = ours.Get(t.Context(), "/registry/secrets")
	denied("a read of another key", err)
	_, err = ours.Commit(t.Context(), etcd.Change{Key: "/registry/secrets", Value: []byte("1")})
	denied("a change of another key", err)
}
