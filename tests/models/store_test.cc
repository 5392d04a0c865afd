#include "models/store.h"

#include <gtest/gtest.h>
#include <pwd.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "qkv/error.h"
#include "qkv/model.h"

namespace qkv {
namespace {

namespace fs = std::filesystem;

// Sets a variable of the environment, or takes it away, until the end of the test.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* text = std::getenv(name)) before_ = text;
    Set(value);
  }
  ~Variable() { Set(before_ ? before_->c_str() : nullptr); }

 private:
  void Set(const char* value) const { value != nullptr ? setenv(name_, value, 1) : unsetenv(name_); }

  const char* name_;
  std::optional<std::string> before_;
};

TEST(ModelsFolder, FollowsTheEnvironment) {
  const Variable home("HOME", "/home/ada"), data("XDG_DATA_HOME", "/data"), models("QKV_MODELS", "models");
  EXPECT_EQ(ModelsFolder(), "models");
  const Variable no_models("QKV_MODELS", "");
  EXPECT_EQ(ModelsFolder(), "/data/qkv/models");
  const Variable relative("XDG_DATA_HOME", "data");  // the specification says to ignore it
  EXPECT_EQ(ModelsFolder(), "/home/ada/.local/share/qkv/models");
  const Variable no_home("HOME", nullptr);
  EXPECT_EQ(ModelsFolder(), fs::path(getpwuid(getuid())->pw_dir) / ".local/share/qkv/models");
}

class StoreTest : public testing::Test {
 protected:
  StoreTest() {
    std::string name = (fs::temp_directory_path() / "qkv-store-XXXXXX").string();
    folder_ = mkdtemp(name.data());
    models_.emplace("QKV_MODELS", folder_.c_str());
  }
  ~StoreTest() override { fs::remove_all(folder_); }

  // An installed model, as links to its files.
  void Link(const std::string& name) {
    models_.reset();
    const fs::path installed = ModelsFolder() / name;
    models_.emplace("QKV_MODELS", folder_.c_str());
    ASSERT_TRUE(fs::exists(installed)) << "install it with scripts/models " << name;
    fs::create_directory(folder_ / name);
    for (const fs::directory_entry& entry : fs::directory_iterator(installed)) {
      fs::create_symlink(entry.path(), folder_ / name / entry.path().filename());
    }
  }

  void ExpectError(const std::string& name, ErrorCode code, const std::string& message) const {
    try {
      ADD_FAILURE() << FindModel(name);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code);
      EXPECT_NE(std::string(error.what()).find(message), std::string::npos) << error.what();
    }
  }

  fs::path folder_;
  std::optional<Variable> models_;
};

TEST_F(StoreTest, KnownModelsAreDescribed) {
  const std::vector<KnownModel> models = KnownModels();
  ASSERT_FALSE(models.empty());
  EXPECT_EQ(models.front().name, kDefaultModel);
  for (const KnownModel& model : models) {
    EXPECT_EQ(model.installed, model.ships);
    EXPECT_FALSE(model.description.empty());
    EXPECT_FALSE(model.licence.empty());
    EXPECT_EQ(model.checksum.size(), 64u) << model.name;
    if (model.ships) {
      EXPECT_TRUE(model.path.string().ends_with("share/qkv/models/" + model.name)) << model.path;
    } else {
      EXPECT_EQ(model.path.string().rfind((folder_ / model.name).string(), 0), 0u) << model.path;
    }
  }
}

TEST_F(StoreTest, AbsentModelSaysHowToGetIt) {
  ExpectError("minilm", ErrorCode::kInvalidArgument, "scripts/models minilm");
  ExpectError("minilm", ErrorCode::kInvalidArgument, folder_.string());
}

TEST_F(StoreTest, TheShippedModelIsThereWithoutBeingInstalled) {
  const std::vector<KnownModel> models = KnownModels();
  ASSERT_EQ(models.back().name, "tiny");
  EXPECT_EQ(FindModel("tiny"), models.back().path);
  EXPECT_EQ(LoadModel("tiny")->info().architecture, "gpt2");
}

TEST_F(StoreTest, WhereNoModelIsNamedAndNoneInstalledItIsTheShippedOne) {
  EXPECT_EQ(DefaultModel(ModelUse::kLook), "tiny");
  EXPECT_EQ(DefaultModel(ModelUse::kGenerate), "tiny");
}

TEST_F(StoreTest, AnInstalledModelComesBeforeTheShippedOne) {
  Link("minilm");
  EXPECT_EQ(DefaultModel(ModelUse::kLook), "minilm");
  EXPECT_EQ(DefaultModel(ModelUse::kGenerate), "tiny") << "minilm does not read from the left";
}

TEST_F(StoreTest, AnyInstalledModelComesBeforeTheShippedOne) {
  models_.reset();
  if (!fs::exists(ModelsFolder() / "smollm2")) GTEST_SKIP() << "smollm2 is not installed";
  Link("smollm2");
  EXPECT_EQ(DefaultModel(ModelUse::kLook), "smollm2");
  EXPECT_EQ(DefaultModel(ModelUse::kGenerate), "smollm2");
}

TEST_F(StoreTest, InstalledModelIsFound) {
  Link("minilm");
  EXPECT_TRUE(KnownModels().front().installed);
  EXPECT_EQ(FindModel("minilm"), folder_ / "minilm");
}

TEST_F(StoreTest, IncompleteModelCountsAsAbsent) {
  Link("minilm");
  fs::remove(folder_ / "minilm" / "vocab.txt");
  EXPECT_FALSE(KnownModels().front().installed);
  ExpectError("minilm", ErrorCode::kInvalidArgument, "not installed");
  std::ofstream(folder_ / "minilm" / "vocab.txt") << "cut short";
  ExpectError("minilm", ErrorCode::kInvalidArgument, "not installed");
}

TEST_F(StoreTest, PathsAreTakenAsTheyAre) {
  EXPECT_EQ(FindModel(folder_.string()), folder_);
  ExpectError((folder_ / "absent").string(), ErrorCode::kFile, "no such file or folder");
}

TEST_F(StoreTest, UnknownNamesListTheKnownOnes) {
  ExpectError("no-such-model", ErrorCode::kInvalidArgument, "a path or one of minilm");
  ExpectError("", ErrorCode::kInvalidArgument, "no such model");
}

}  // namespace
}  // namespace qkv
