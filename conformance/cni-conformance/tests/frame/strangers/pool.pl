#!/usr/bin/perl
# An IPAM plugin: `ipam.size` addresses of 10.94.0.0/24, and a file for each that is given. FAULT is empty, or names how it is wrong.
use strict;
use warnings;
use Fcntl ':flock';
use JSON::PP;

my $FAULT = "";
my $folder = "/var/lib/cni/pool.pl";
my @versions = ("0.4.0", "1.0.0", "1.1.0");
my $version = "1.1.0";
my $json = JSON::PP->new->canonical;

sub is { return $FAULT eq $_[0] }

sub say_and_end {
    my ($status, $object) = @_;
    print $json->encode($object), "\n";
    exit $status;
}

sub refuse {
    my ($code, $msg) = @_;
    say_and_end(is("fails-with-status-0") && $code == 1 ? 0 : 1, { cniVersion => $version, code => $code, msg => $msg });
}

sub read_all { my ($path) = @_; open my $file, '<', $path or return ""; local $/; my $text = <$file>; return $text // "" }

my $text = do { local $/; <STDIN> } // "";
my $config = eval { $json->decode($text) };
refuse(6, "the config is no JSON object") unless ref $config eq 'HASH';
$version = $config->{cniVersion} // "0.1.0";
my $verb = $ENV{CNI_COMMAND} // "";
if ($verb eq "VERSION") {
    my @listed = is("lists-what-it-refuses") ? ("0.3.1", @versions) : @versions;
    say_and_end(0, { cniVersion => $version, supportedVersions => \@listed });
}
my $name = qr/\A[A-Za-z0-9][A-Za-z0-9_.-]*\z/;
my %needed = (ADD => ["CONTAINERID", "NETNS", "IFNAME"], CHECK => ["CONTAINERID", "NETNS", "IFNAME"], DEL => ["CONTAINERID", "IFNAME"], GC => [], STATUS => []);
my $needed = $needed{$verb} or refuse(4, "CNI_COMMAND '$verb' is unknown");
my @missing = grep { !length($ENV{$_} // "") } map { "CNI_$_" } @$needed;
refuse(4, "@missing must be set") if @missing;
refuse(1, "cniVersion $version is none of @versions") unless grep { $_ eq $version } @versions;
my $network = $config->{name} // "";
refuse(7, "name is no network name") unless $network =~ $name;
my ($id, $ifname, $netns) = map { $ENV{"CNI_$_"} // "" } qw(CONTAINERID IFNAME NETNS);
refuse(4, "CNI_CONTAINERID is no container ID") if @$needed && $id !~ $name;
refuse(4, "CNI_IFNAME is no interface name") if @$needed && $ifname !~ m{\A(?!\.\.?\z)[^/:\s]{1,15}\z};
refuse(3, "CNI_NETNS $netns: no such file") if $verb eq "ADD" && !-e $netns;

mkdir $_ for "/var/lib/cni", $folder;
open my $lock, '>', "$folder/lock" or refuse(5, "cannot lock $folder");
flock $lock, LOCK_EX or refuse(5, "cannot lock $folder");
my %held = map { $_ => read_all("$folder/$_") } map { m{([^/]+)\z} } glob "$folder/10.*";
my $own = "$network $id $ifname";

# Whether GC of this network is about a file's line.
sub is_of_network {
    my ($line) = @_;
    return is("networks-by-their-start") ? index($line, $network) == 0
        : is("networks-without-case") ? index(lc $line, lc "$network ") == 0
        : index($line, "$network ") == 0;
}

my @all = map { "10.94.0.$_" } 2 .. ($config->{ipam}{size} // 253) + 1;
my ($address) = grep { $held{$_} eq $own } sort keys %held;
if ($verb eq "ADD") {
    refuse(100, "$own has an address") if $address;
    ($address) = grep { !exists $held{$_} } @all or refuse(101, "no address is free");
    open my $file, '>', "$folder/$address" or refuse(5, "cannot write $folder/$address");
    print {$file} $own;
    close $file or refuse(5, "cannot write $folder/$address");
    my %ip = (address => "$address/24", gateway => "10.94.0.1", $version eq "0.4.0" ? (version => "4") : ());
    say_and_end(0, { cniVersion => $version, ips => [\%ip], routes => $config->{ipam}{routes} // [], dns => {} });
} elsif ($verb eq "CHECK") {
    refuse(7, "CHECK needs prevResult") unless $config->{prevResult};
    refuse(102, "$own has no address") unless is("anybodys-address-will-do") ? %held : $address;
} elsif ($verb eq "DEL") {
    unlink map { "$folder/$_" } grep { is("ids-without-case") ? lc $held{$_} eq lc $own : $held{$_} eq $own } keys %held;
} elsif ($verb eq "GC") {
    my %valid = map { ("$network $_->{containerID} $_->{ifname}" => 1) } @{ $config->{"cni.dev/valid-attachments"} // [] };
    unlink map { "$folder/$_" } grep { is_of_network($held{$_}) && !$valid{ $held{$_} } } keys %held;
} elsif ($verb eq "STATUS" && !grep { !exists $held{$_} } @all) {
    refuse(50, "no address is free");
}
