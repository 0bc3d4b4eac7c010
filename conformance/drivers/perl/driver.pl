# A client of the protocol, and its driver for the conformance suite, with core modules only.
use strict;
use warnings;
use IO::Socket::INET;
use JSON::PP;
use Time::HiRes qw(time);

$| = 1;
my $json = JSON::PP->new->utf8->canonical->allow_bignum;
my ($login, $host, $port) = $ENV{JOBWIRE_REDIS_URL} =~ m{^redis://(?:([^@]*)@)?([^:/]+):(\d+)}
  or die "JOBWIRE_REDIS_URL is not redis://HOST:PORT";
my $redis = IO::Socket::INET->new(PeerHost => $host, PeerPort => $port) or die "$host:$port: $!";

sub call {    # every reply of these commands is a line, or an array of lines
    print $redis "*", scalar @_, "\r\n", map { "\$" . length($_) . "\r\n$_\r\n" } @_;
    my $reply = <$redis> // die "connection closed\n";
    die "redis: $reply" if $reply =~ /^-/;
    if ($reply =~ /^\*(\d+)/) { read_lines($1) }
}

# User and password are percent-encoded, and + stands for itself. [ENV-7]
call("AUTH", map { s/%(..)/chr hex $1/ger } split /:/, $login, 2) if length($login // "");

sub read_lines { for (1 .. $_[0]) { <$redis> // die "connection closed\n" } }

sub now { $ENV{JOBWIRE_GENERATION} == 8 ? int(time * 1000) : sprintf("%.6f", time) + 0 }

sub push_job {
    my ($job, $at) = @_;
    my %job = (retry => JSON::PP::true, queue => "default", %$job);
    die "rejected: class\n" if ref $job{class} || ($job{class} // "") =~ /^(-?\d.*)?$/;
    die "rejected: args\n" if ref $job{args} ne "ARRAY";
    die "rejected: queue\n" if ref $job{queue} || !length($job{queue} // "");
    die "rejected: at\n" if defined $at && (ref $at || $at !~ /^\d+(\.\d+)?$/ || $at >= 1e11);
    open(my $random, "<:raw", "/dev/urandom") or die $!;
    read($random, my $bytes, 12);
    $job{jid} //= unpack("H*", $bytes);
    $job{created_at} //= now();
    my $name = $job{queue};
    utf8::encode($name);
    if (defined $at) {
        call("ZADD", "schedule", $at, $json->encode(\%job));
    } else {
        $job{enqueued_at} = now();
        call("MULTI");
        call("SADD", "queues", $name);
        call("LPUSH", "queue:$name", $json->encode(\%job));
        call("EXEC");
    }
    return { jid => $job{jid} };
}

while (my $line = <STDIN>) {
    my $request = $json->decode($line);
    my ($op, $at) = @$request{"op", "at"};
    $at = 0 + "$at" if ref($at) =~ /^Math::Big/;
    if (defined(my $in = $request->{in})) {
        $at = $in < 1e9 ? time + $in : $in;
        $at = undef if $at <= time;
    }
    my $answer =
        $op eq "hello" ? { ok => { driver => 1, version => "1", ops => ["push"] } }
      : $op eq "push"  ? eval { { ok => push_job($request->{job}, $at) } }
      : $op eq "bye"   ? { ok => {} }
      :                  { unsupported => JSON::PP::true };
    $answer //= { error => { kind => $@ =~ /^rejected/ ? "rejected" : "unknown", message => "$@" } };
    print $json->encode({ id => $request->{id}, %$answer }), "\n";
    last if $op eq "bye";
}
